// Logs of calls, for Python. Layer: front end.
#include "tool/log.h"

#include <memory>
#include <string>

#include <fmt/format.h>

#include "arguments.h"
#include "cli/log.h"

namespace finegemm::python {

namespace {

constexpr const char* kLog = "finegemm.log";  // the name of its capsules

using SharedLog = std::shared_ptr<cli::CallLog>;

SharedLog& shared_in(PyObject* capsule) {
    void* log = PyCapsule_GetPointer(capsule, kLog);
    if (!log) throw PythonError();
    return *static_cast<SharedLog*>(log);
}

/// The GIL, for a thread that may have it.
class WithGil {
public:
    WithGil() = default;
    ~WithGil() { PyGILState_Release(state_); }
    WithGil(const WithGil&) = delete;
    WithGil& operator=(const WithGil&) = delete;

private:
    PyGILState_STATE state_ = PyGILState_Ensure();
};

/// What the callable raises is reported as what destructors raise: the call has been made.
void tell(PyObject* callable, const LoggedCall& call) {
    const std::string device = call.device.type == DeviceType::Cuda ? fmt::format("cuda:{}", call.device.index) : "cpu";
    PyObject* result = PyObject_CallFunction(callable, "ssssd", call.line.c_str(), call.kernel.c_str(),
                                             call.origin.c_str(), device.c_str(), call.host_us);
    if (!result) PyErr_WriteUnraisable(callable);
    Py_XDECREF(result);
}

}  // namespace

Object open_log(const Imports&, PyObject* wish) {
    auto log = std::make_unique<SharedLog>(std::make_shared<cli::CallLog>(std::string(text("log", wish))));
    Object capsule(PyCapsule_New(log.get(), kLog, [](PyObject* x) { delete &shared_in(x); }));
    static_cast<void>(log.release());
    return capsule;
}

Object finish_log(const Imports&, PyObject* log) {
    shared_in(log)->finish();
    return Object::shared(Py_None);
}

Log log_of(PyObject* x) {
    if (x == Py_None) return {};
    if (PyCapsule_IsValid(x, kLog)) return [log = shared_in(x)](const LoggedCall& call) { log->add(call); };
    const std::shared_ptr<PyObject> callable(Object::shared(x).release(), [](PyObject* last) {
        const WithGil held;
        Py_DECREF(last);
    });
    return [callable](const LoggedCall& call) {
        const WithGil held;
        tell(callable.get(), call);
    };
}

}  // namespace finegemm::python
