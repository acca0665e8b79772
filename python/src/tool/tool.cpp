// The command line tool, for Python. Layer: front end.
#include "tool/tool.h"

#include <sstream>
#include <string>
#include <vector>

#include <finegemm/context.h>

#include "api/context.h"
#include "api/options.h"
#include "arguments.h"
#include "cli/tool.h"

namespace finegemm::python {

namespace {

/// As main() gets them.
struct CommandLine {
    std::vector<std::string> words{"finegemm"};
    std::vector<const char*> argv;

    explicit CommandLine(PyObject* arguments) {
        const Py_ssize_t count = PySequence_Size(arguments);
        for (Py_ssize_t i = 0; i < count; ++i)
            words.emplace_back(text("arguments", Object(PySequence_GetItem(arguments, i)).get()));
        for (const std::string& word : words) argv.push_back(word.c_str());
    }
    int count() const { return static_cast<int>(argv.size()); }
};

Object list_of(const std::vector<std::string>& lines) {
    Object list(PyList_New(0));
    for (const std::string& line : lines) {
        const Object text(PyUnicode_DecodeUTF8(line.data(), static_cast<Py_ssize_t>(line.size()), "replace"));
        if (PyList_Append(list.get(), text.get()) != 0) throw PythonError();
    }
    return list;
}

}  // namespace

Object misspelt(const Imports&) { return list_of(misspelt_variables()); }

Object problems(const Context& context) { return list_of(context.state().problems()); }

Object run_tool(const Imports&, PyObject* arguments) {
    const CommandLine line(arguments);
    int code = 0;
    {
        const WithoutGil others_run;
        code = cli::run_tool(line.count(), line.argv.data());
    }
    return Object(PyLong_FromLong(code));
}

Object report(const Context& context, PyObject* arguments) {
    const CommandLine line(arguments);
    std::ostringstream out;
    int code = 0;
    {
        WithoutGil others_run;
        code = cli::run_command(line.count(), line.argv.data(),
                                {.out = out,
                                 .options = [&] { return context.options(); },
                                 .poll = [&](double) { others_run.run_handlers(); }});
    }
    const std::string written = out.str();
    const Object status(PyLong_FromLong(code));
    const Object content(PyUnicode_FromStringAndSize(written.data(), static_cast<Py_ssize_t>(written.size())));
    return Object(PyTuple_Pack(2, status.get(), content.get()));
}

}  // namespace finegemm::python
