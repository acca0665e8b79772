// Python objects and exceptions in C++. Layer: front end.
#pragma once

#include <Python.h>
#include <unistd.h>

#include <utility>

namespace finegemm::python {

/// A Python exception is set; thrown to leave C++ with it.
struct PythonError {};

/// An owned reference.
class Object {
public:
    Object() = default;
    /// Takes over a new reference, as Python's functions return it. Throws PythonError for null.
    explicit Object(PyObject* taken) : object_(taken) {
        if (!taken) throw PythonError();
    }
    static Object shared(PyObject* borrowed) {
        Py_XINCREF(borrowed);
        return Object(borrowed);
    }
    Object(Object&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
    Object& operator=(Object&& other) noexcept {
        std::swap(object_, other.object_);
        return *this;
    }
    ~Object() { Py_XDECREF(object_); }

    PyObject* get() const { return object_; }
    PyObject* release() { return std::exchange(object_, nullptr); }

private:
    PyObject* object_ = nullptr;
};

/// While it lives, other Python threads run.
class WithoutGil {
public:
    WithoutGil() = default;
    ~WithoutGil() { restore(); }
    /// Runs handlers of signals, on Python's main thread. Throws PythonError for what they raise, KeyboardInterrupt
    /// say.
    void run_handlers() {
        restore();
        const bool raised = PyErr_CheckSignals() != 0;
        state_ = PyEval_SaveThread();
        if (raised) throw PythonError();
    }
    WithoutGil(const WithoutGil&) = delete;
    WithoutGil& operator=(const WithoutGil&) = delete;

private:
    void restore() {
        try {
            PyEval_RestoreThread(state_);
        } catch (...) {
            // The interpreter has ended, and Python before 3.14 unwinds the stack to end the thread. Objects may not be
            // released any more: stay, as Python itself does from then on.
            for (;;) pause();
        }
    }

    PyThreadState* state_ = PyEval_SaveThread();
};

}  // namespace finegemm::python
