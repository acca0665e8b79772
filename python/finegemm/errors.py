"""What the library raises. Each class is one code of the C++ and C interfaces."""


class FineGemmError(RuntimeError):
    """The base of all errors of this package."""

    code: str = "Internal"


class InvalidArgument(FineGemmError, ValueError):
    """An argument breaks a documented rule; the message names it, its value and the rule."""

    code = "InvalidArgument"


class Unsupported(FineGemmError):
    """Valid, but not on this device or in this build."""

    code = "Unsupported"


class DriverError(FineGemmError):
    """The CUDA driver reported an error."""

    code = "Driver"


class CompileError(FineGemmError):
    """Run-time compilation failed; the message carries the log."""

    code = "Compile"


class IoError(FineGemmError, OSError):
    """A file could not be read or written."""

    code = "Io"


class OutOfMemory(FineGemmError, MemoryError):
    """The host or the device has no memory left."""

    code = "OutOfMemory"


class PeerError(FineGemmError):
    """Another rank of a communicator has not come, or has left; the communicator has ended."""

    code = "Peer"


class InternalError(FineGemmError):
    """A broken invariant of the library: please report it."""

    code = "Internal"
