"""Chat lines as turns: what a Jinja chat template makes of "messages", cut where an assistant's
turn begins and ends.

Templates are those of the package transformers: its settings, its functions but for the date, and
its tag `generation`, which changes no text. What an assistant's turn is follows from the template
alone. The text before it is that of the messages before with the generation prompt; the text to its
end is that of the messages up to it. Both must be how the whole conversation begins: a template
that writes a turn otherwise once more follow is refused.
"""

import json
import pathlib


class Refused(Exception):
    """A template, or a conversation that it cannot be used for."""


def special_tokens(config):
    """bos_token and the like, as text."""
    return {name: token["content"] if isinstance(token, dict) else token
            for name, token in config.items()
            if name.endswith("_token") and isinstance(token, (str, dict))}


def read_config(path):
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise Refused(f"{path}: {error}") from None
    return config if isinstance(config, dict) else {}


def source_of(folder, config):
    """(where, text) of the template that a published folder has."""
    beside = folder / "chat_template.jinja"
    if beside.exists():
        return beside, beside.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):  # of several by name
        template = next((one["template"] for one in template if one.get("name") == "default"), None)
    if not isinstance(template, str):
        raise Refused(f"{folder}: neither chat_template.jinja nor \"chat_template\" in "
                      "tokenizer_config.json: give --chat-template FILE")
    return folder / "tokenizer_config.json", template


def environment():
    import jinja2.ext
    import jinja2.sandbox

    class Generation(jinja2.ext.Extension):
        """{% generation %} ... {% endgeneration %}: what is between."""
        tags = {"generation"}

        def parse(self, parser):
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def raise_exception(message):
        raise jinja2.TemplateError(message)

    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    made.filters["tojson"] = lambda value, **how: json.dumps(value, ensure_ascii=False, **how)
    made.globals["raise_exception"] = raise_exception
    return made


class ChatTemplate:
    def __init__(self, tokenizer, path=None):
        """@param tokenizer tokenizer.json  @param path of a template; without it the one beside
        the tokenizer"""
        folder = pathlib.Path(tokenizer).parent
        config = read_config(folder / "tokenizer_config.json")
        try:
            self.path, text = ((path, pathlib.Path(path).read_text(encoding="utf-8")) if path
                               else source_of(folder, config))
        except (OSError, UnicodeDecodeError) as error:
            raise Refused(f"{path or folder}: {error}") from None
        self.known = special_tokens(config)
        try:
            self.template = environment().from_string(text)
        except Exception as error:  # of the template's author
            raise Refused(f"{self.path}: {error}") from None

    def render(self, messages, more, prompt=False):
        try:
            return self.template.render(messages=messages, add_generation_prompt=prompt,
                                        **{**self.known, "tools": None, **more})
        except Exception as error:  # whatever a template does with what it is given
            raise Refused(f"{self.path} fails: {error}") from None

    def turns(self, messages, more):
        """Texts by turns: only read, predicted, only read, and so on.

        @param more other variables of the template: "tools"
        """
        if not isinstance(messages, list) or not all(
                isinstance(one, dict) and isinstance(one.get("role"), str) for one in messages):
            raise Refused('"messages" is a list of objects with a "role"')
        whole, turns, end = self.render(messages, more), [], 0
        for index, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            before = self.render(messages[:index], more, prompt=True) if index else ""
            after = self.render(messages[:index + 1], more)
            if not whole.startswith(after) or not after.startswith(before) or len(before) < end:
                raise Refused(f"{self.path}: message {index + 1} is not written the same with and "
                              "without those that follow, so what is predicted cannot be told: "
                              "end the conversation there")
            turns += [whole[end:len(before)], whole[len(before):len(after)]]
            end = len(after)
        return turns + [whole[end:]] if end < len(whole) else turns
