"""What is wrong with a pool, by its numbers: a module asks a question of `Evidence` and answers with a `Finding`.

Pure: nothing here reads a file, a socket or a clock.
"""
