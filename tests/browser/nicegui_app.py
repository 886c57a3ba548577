"""A page of NiceGUI, whose elements call the server by Socket.IO."""

from fastapi import FastAPI
from nicegui import ui

app = FastAPI()


@ui.page("/")
def page() -> None:
    count = {"clicks": 0}
    label = ui.label("not clicked").props("id=told")
    field = ui.input("name")

    def clicked() -> None:
        count["clicks"] += 1
        label.set_text(f"clicked {count['clicks']} times by {field.value}")

    ui.button("click", on_click=clicked).props("id=button")
    ui.timer(0.1, lambda: ticks.set_text(str(int(ticks.text) + 1)))
    ticks = ui.label("0").props("id=ticks")


ui.run_with(app)
