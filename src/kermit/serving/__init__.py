"""The HTTP service and its page: everything that `kermit.pipeline.Kermit` can do, for many concurrent callers.

A request is validated (`schemas`) and waits in a bounded queue (`jobs`) for the thread that owns the model, which
answers similar requests in one batch (`served_model`). `service` starts that thread, and is the interface for the
routes (`app`); `server` runs them.
"""
