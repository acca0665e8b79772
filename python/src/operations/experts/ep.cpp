// finegemm.ep. Layer: front end.
#include "operations/experts/ep.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <finegemm/ep.h>
#include <finegemm/error.h>
#include <fmt/format.h>

#include "api/option_lists.h"
#include "operations/experts/moe.h"

namespace finegemm::python {

namespace {

// Names of capsules.
constexpr const char *kName = "finegemm.ep.Communicator", *kMemory = "finegemm.ep.PeerMemory";

Object capsule_of(Communicator made) {
    auto owned = std::make_unique<Communicator>(std::move(made));
    Object capsule(PyCapsule_New(owned.get(), kName, [](PyObject* handle) {
        delete static_cast<Communicator*>(PyCapsule_GetPointer(handle, kName));
    }));
    static_cast<void>(owned.release());
    return capsule;
}

Communicator& communicator_in(PyObject* handle) {
    void* const communicator = PyCapsule_GetPointer(handle, kName);
    if (!communicator) throw PythonError();
    return *static_cast<Communicator*>(communicator);
}

PeerMemory& memory_in(PyObject* handle) {
    void* const memory = PyCapsule_GetPointer(handle, kMemory);
    if (!memory) throw PythonError();
    return *static_cast<PeerMemory*>(memory);
}

CommunicatorOptions take_options(Arguments& given) {
    CommunicatorOptions options;
    float timeout = static_cast<float>(options.timeout_s);
    given.take("timeout", timeout);
    options.timeout_s = timeout;
    given.take("nccl_path", options.nccl_path);
    return options;
}

CommunicatorId id_of(PyObject* given) {
    char* data = nullptr;
    Py_ssize_t size = 0;
    if (PyBytes_AsStringAndSize(given, &data, &size) != 0) throw PythonError();
    CommunicatorId id;
    if (static_cast<size_t>(size) != id.bytes.size())
        throw Error(Errc::InvalidArgument,
                    fmt::format("id: has {} bytes, must have {}; pass what communicator_id of one rank returned", size,
                                id.bytes.size()));
    std::copy_n(data, size, id.bytes.begin());
    return id;
}

/// The attribute that has the capsule.
Object handle_of(PyObject* communicator) {
    Object handle(PyObject_GetAttrString(communicator, "handle"));
    return handle;
}

Object nothing() { return Object::shared(Py_None); }

}  // namespace

Object ep_moe_into(const Imports& imports, Context& context, Arguments& given) {
    Tensors tensors(imports);
    const Object handle = handle_of(given.required("communicator"));
    Communicator& communicator = communicator_in(handle.get());
    MoeArgs args;
    MoeOptions options;
    EpOptions how;
    Object out = take_layer(tensors, given, args, options);
    given.take("capacity", how.capacity);
    if (PyObject* counts = given.optional("counts"); counts != Py_None)
        how.counts = tensors.row("counts", counts, Access::Write);
    PyObject* const memory = given.optional("memory");
    const Object of_memory = memory == Py_None ? nothing() : handle_of(memory);
    if (memory != Py_None) how.memory = &memory_in(of_memory.get());
    given.check_all_taken();
    WithoutGil others_run;
    options.poll = [&](double) { others_run.run_handlers(); };
    ep_moe(context, communicator, args, how, options);
    return out;
}

Object ep_moe_workspace_bytes_of(const Imports&, PyObject* keywords) {
    Arguments given(keywords);
    MoeShape shape;
    int32_t ranks = 0;
    int64_t capacity = 0;
    moe_fields([&](const char* name, auto& member) { given.take(name, member); }, shape);
    given.take("ranks", ranks);
    given.take("capacity", capacity);
    given.check_all_taken();
    return Object(PyLong_FromLongLong(ep_moe_workspace_bytes(shape, ranks, capacity)));
}

Object make_communicator_id(const Context& context, PyObject* keywords) {
    Arguments given(keywords);
    const CommunicatorOptions options = take_options(given);
    given.check_all_taken();
    const CommunicatorId id = Communicator::make_id(context, options);
    return Object(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(id.bytes.data()),
                                            static_cast<Py_ssize_t>(id.bytes.size())));
}

Object make_communicator(const Context& context, PyObject* keywords) {
    Arguments given(keywords);
    const CommunicatorId id = id_of(given.required("id"));
    int32_t rank = 0, ranks = 0, device = 0;
    given.take("rank", rank);
    given.take("ranks", ranks);
    given.take("device", device);
    const CommunicatorOptions options = take_options(given);
    given.check_all_taken();
    std::unique_ptr<Communicator> made;
    {
        const WithoutGil others_run;
        made = std::make_unique<Communicator>(context, id, rank, ranks, device, options);
    }
    return capsule_of(std::move(*made));
}

Object communicators_of_threads(const Imports&, PyObject* keywords) {
    Arguments given(keywords);
    int32_t ranks = 0;
    given.take("ranks", ranks);
    const CommunicatorOptions options = take_options(given);
    given.check_all_taken();
    std::vector<Communicator> all = Communicator::of_threads(ranks, options);
    Object list(PyList_New(0));
    for (Communicator& one : all) {
        const Object capsule = capsule_of(std::move(one));
        if (PyList_Append(list.get(), capsule.get()) != 0) throw PythonError();
    }
    return list;
}

Object make_peer_memory(const Imports&, PyObject* communicator, PyObject* keywords) {
    Communicator& c = communicator_in(communicator);
    Arguments given(keywords);
    MoeShape most;
    given.take("tokens", most.tokens);
    given.take("choices", most.choices);
    given.take("hidden", most.hidden);
    given.take("intermediate", most.intermediate);
    given.take("experts", most.experts);
    given.check_all_taken();
    std::unique_ptr<PeerMemory> made;
    {
        const WithoutGil others_run;
        made = std::make_unique<PeerMemory>(c, most);
    }
    Object capsule(PyCapsule_New(made.get(), kMemory, [](PyObject* handle) {
        delete static_cast<PeerMemory*>(PyCapsule_GetPointer(handle, kMemory));
    }));
    static_cast<void>(made.release());
    return capsule;
}

Object facts_of_memory(const Imports&, PyObject* memory) {
    const PeerMemory& m = memory_in(memory);
    return Object(Py_BuildValue("OL", m.is_reached() ? Py_True : Py_False, static_cast<long long>(m.bytes())));
}

Object place_of(const Imports&, PyObject* communicator) {
    const Communicator& c = communicator_in(communicator);
    const Device device = c.device();
    return Object(Py_BuildValue("iii", c.rank(), c.ranks(), device.type == DeviceType::Cuda ? device.index : -1));
}

Object wait_for(const Imports&, PyObject* communicator, PyObject* stream) {
    Communicator& c = communicator_in(communicator);
    const auto number = reinterpret_cast<Stream>(integer("stream", stream));
    {
        const WithoutGil others_run;
        c.wait(number);
    }
    return nothing();
}

Object end_communicator(const Imports&, PyObject* communicator) {
    Communicator& c = communicator_in(communicator);
    {
        const WithoutGil others_run;
        c.end();
    }
    return nothing();
}

}  // namespace finegemm::python
