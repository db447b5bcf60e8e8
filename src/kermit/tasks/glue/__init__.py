"""GLUE: nine language understanding tasks and a diagnostic set, finetuned and scored (section 4.2 of the paper).

The tasks are rows of one table (`table`). The other modules know no task by name: reading (`data`), models and their
inputs (`classifier`), scores (`scoring`), one finetuning (`finetuning`), many of them (`runs`), and the test server's
zip (`submission`). The trunk is a KERMIT checkpoint, or any model that transformers can classify with.
"""
