"""The HTTP service and its page: all that `kermit.pipeline.Kermit` can do, for many callers at once.

A request is checked (`schemas`), waits in a bounded queue (`jobs`) for a thread that owns the model (`worker`), which
answers like requests together (`served_model`). `service` is what the routes (`app`) see of that; `server` runs them.
"""
