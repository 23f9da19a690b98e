"""The subcommands, by what they are about, and how they print; `cli.py` puts them together.

settings, named_engine   what users write, made into values      shared           options that several share
signature                parameters from classes of options      logs             what is shown of the log
console, as_json         what is printed: tables, or JSON        plots            pictures
live, live_master        what is shown while something runs      run_summary      what is told at its end
"""
