// kvgraft completions bash|zsh|fish, and help. The scripts are made from the verbs as registered,
// so they cannot lag behind; names of artifacts come from `kvgraft ls --refs` at completion time.
#include <algorithm>

#include "kvgraft/cli/shell.h"

namespace kvgraft::cli {
namespace {

struct Flag {
  std::string name;  // with its dashes
  std::string text;
  bool takes_value = false;
};
struct Verb {
  std::string name, text;
  std::vector<Flag> flags;
  bool takes_ref = false;
};

const std::vector<std::pair<std::string, std::string>> kShortNames = {
    {"--ubatch-size", "-ub"},   {"--flash-attn", "-fa"},    {"--cache-type-k", "-ctk"},
    {"--cache-type-v", "-ctv"}, {"--n-gpu-layers", "-ngl"},
};

std::vector<Verb> CollectVerbs(const CLI::App& root) {
  std::vector<Verb> verbs;
  for (const CLI::App* app : root.get_subcommands([](const CLI::App*) { return true; })) {
    if (app->get_group().empty()) continue;
    Verb verb{app->get_name(), app->get_description(), {}, false};
    for (const CLI::Option* option : app->get_options()) {
      if (option->get_positional()) verb.takes_ref |= option->get_name() == "REF";
      const bool takes_value = option->get_items_expected_max() > 0;
      for (const std::string& name : option->get_lnames()) {
        verb.flags.push_back({"--" + name, option->get_description(), takes_value});
        for (const auto& [long_name, short_name] : kShortNames) {
          if ("--" + name == long_name) {
            verb.flags.push_back({short_name, option->get_description(), takes_value});
          }
        }
      }
      for (const std::string& name : option->get_snames()) {
        verb.flags.push_back({"-" + name, option->get_description(), takes_value});
      }
    }
    verbs.push_back(verb);
  }
  return verbs;
}

std::string VerbNames(const std::vector<Verb>& verbs) {
  std::string names;
  for (const Verb& verb : verbs) names += (names.empty() ? "" : " ") + verb.name;
  return names;
}

std::string FlagNames(const Verb& verb) {
  std::string names;
  for (const Flag& flag : verb.flags) names += (names.empty() ? "" : " ") + flag.name;
  return names;
}

std::string Bash(const std::vector<Verb>& verbs) {
  std::string cases, refs;
  for (const Verb& verb : verbs) {
    cases += "    " + verb.name + ") words=\"" + FlagNames(verb) + "\" ;;\n";
    if (verb.takes_ref) refs += (refs.empty() ? "" : "|") + verb.name;
  }
  return "# bash completion for kvgraft:  source <(kvgraft completions bash)\n"
         "_kvgraft() {\n"
         "  local cur=\"${COMP_WORDS[COMP_CWORD]}\" prev=\"${COMP_WORDS[COMP_CWORD-1]}\" words=\n"
         "  COMPREPLY=()\n"
         "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
         "    COMPREPLY=($(compgen -W \"" +
         VerbNames(verbs) +
         "\" -- \"$cur\"))\n"
         "    return\n"
         "  fi\n"
         "  case \"$prev\" in\n"
         "    --graft) COMPREPLY=($(compgen -W \"$(kvgraft ls --refs -q 2>/dev/null)\" -- "
         "\"$cur\")); "
         "return ;;\n"
         "    -fa|--flash-attn) COMPREPLY=($(compgen -W \"on off auto\" -- \"$cur\")); return ;;\n"
         "  esac\n"
         "  case \"${COMP_WORDS[1]}\" in\n" +
         cases +
         "  esac\n"
         "  case \"$cur\" in\n"
         "    -*) COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")); return ;;\n"
         "  esac\n"
         "  case \"${COMP_WORDS[1]}\" in\n"
         "    " +
         refs +
         ") COMPREPLY=($(compgen -W \"$(kvgraft ls --refs -q 2>/dev/null)\" -- "
         "\"$cur\")) ;;\n"
         "    models) COMPREPLY=($(compgen -W \"list pull path\" -- \"$cur\")) ;;\n"
         "    completions) COMPREPLY=($(compgen -W \"bash zsh fish\" -- \"$cur\")) ;;\n"
         "    *) COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n"
         "  esac\n"
         "}\n"
         "complete -o filenames -F _kvgraft kvgraft\n";
}

// Text between single quotes of a shell; colons and brackets mean something to zsh's _arguments.
std::string Quoted(const std::string& text, bool zsh) {
  std::string out;
  for (char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else if (zsh && (c == ':' || c == '[' || c == ']')) {
      out += std::string("\\") + c;
    } else {
      out += c;
    }
  }
  return out;
}

std::string Zsh(const std::vector<Verb>& verbs) {
  std::string names, cases;
  for (const Verb& verb : verbs) {
    names += "    '" + verb.name + ":" + Quoted(verb.text, true) + "'\n";
    cases += "    " + verb.name + ")\n      _arguments \\\n";
    for (const Flag& flag : verb.flags) {
      cases += "        '" + flag.name + "[" + Quoted(flag.text, true) + "]" +
               (flag.takes_value ? ":value:_files" : "") + "' \\\n";
    }
    cases += verb.takes_ref ? "        '*:artifact:($(kvgraft ls --refs -q 2>/dev/null))' ;;\n"
                            : "        '*:argument:_files' ;;\n";
  }
  return "#compdef kvgraft\n"
         "# zsh completion for kvgraft:  kvgraft completions zsh > \"${fpath[1]}/_kvgraft\"\n"
         "_kvgraft() {\n"
         "  local -a verbs\n"
         "  verbs=(\n" +
         names +
         "  )\n"
         "  if (( CURRENT == 2 )); then\n"
         "    _describe 'verb' verbs\n"
         "    return\n"
         "  fi\n"
         "  local verb=$words[2]\n"
         "  words=(\"${words[@]:1}\")\n"
         "  (( CURRENT-- ))\n"
         "  case $verb in\n" +
         cases +
         "  esac\n"
         "}\n"
         "compdef _kvgraft kvgraft\n";
}

std::string Fish(const std::vector<Verb>& verbs) {
  std::string out =
      "# fish completion for kvgraft:  kvgraft completions fish | source\n"
      "complete -c kvgraft -f\n";
  for (const Verb& verb : verbs) {
    const std::string seen = "-n '__fish_seen_subcommand_from " + verb.name + "'";
    out += "complete -c kvgraft -n __fish_use_subcommand -a " + verb.name + " -d '" +
           Quoted(verb.text, false) + "'\n";
    for (const Flag& flag : verb.flags) {
      const std::string kind = flag.name[1] == '-'     ? "-l " + flag.name.substr(2)
                               : flag.name.size() == 2 ? "-s " + flag.name.substr(1)
                                                       : "-o " + flag.name.substr(1);
      out += "complete -c kvgraft " + seen + " " + kind + (flag.takes_value ? " -r -F" : "") +
             " -d '" + Quoted(flag.text, false) + "'\n";
    }
    out += "complete -c kvgraft " + seen +
           (verb.takes_ref ? " -a '(kvgraft ls --refs -q 2>/dev/null)'\n" : " -F\n");
  }
  return out;
}

Status RunCompletions(Shell& shell, const std::string& name) {
  const std::vector<Verb> verbs = CollectVerbs(*shell.root);
  const std::string script = name == "bash"  ? Bash(verbs)
                             : name == "zsh" ? Zsh(verbs)
                                             : Fish(verbs);
  if (shell.console.json) {
    shell.console.PrintJson({{"shell", name}, {"script", script}});
  } else {
    shell.console.Print(script);
  }
  return Status::Ok();
}

Status RunHelp(Shell& shell, const std::string& name) {
  const CLI::App* app = name.empty() ? shell.root : nullptr;
  for (const CLI::App* verb : shell.root->get_subcommands([](const CLI::App*) { return true; })) {
    if (verb->get_name() == name && !verb->get_group().empty()) app = verb;
  }
  if (app == nullptr) {
    return Status(Code::kInvalidArgument, "'" + name + "' is not a verb; see 'kvgraft --help'");
  }
  // Not app->help(), which would give the help of the verb that runs: this one.
  const std::string called = app == shell.root ? "kvgraft" : "kvgraft " + app->get_name();
  const std::string text = app->get_formatter()->make_help(app, called, CLI::AppFormatMode::Normal);
  if (shell.console.json) {
    shell.console.PrintJson({{"help", text}});
  } else {
    shell.console.Print(text);
  }
  return Status::Ok();
}

}  // namespace

void AddCompletionVerbs(Shell& shell) {
  CLI::App* verb = AddVerb(shell, "completions", "completion script for a shell");
  auto name = std::make_shared<std::string>();
  verb->add_option("SHELL", *name, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  verb->callback(
      [&shell, name] { shell.action = [&shell, name] { return RunCompletions(shell, *name); }; });

  CLI::App* help = AddVerb(shell, "help", "help on a verb");
  auto topic = std::make_shared<std::string>();
  help->add_option("VERB", *topic, "the verb");
  help->callback(
      [&shell, topic] { shell.action = [&shell, topic] { return RunHelp(shell, *topic); }; });
}

}  // namespace kvgraft::cli
