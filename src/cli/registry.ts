import { ADMIN_COMMANDS, SHOW_FLAGS } from './admin/commands.ts';
import { OUTPUT_FORMS } from './admin/layout.ts';
import { examples, paragraphs } from './command.ts';
import type { OtherCommand, SinkCommand, SourceCommand } from './command.ts';
import { CLEANUP_FLAGS, NODE_FLAGS } from './flags/backend.ts';
import { text } from './flags/kinds.ts';
import type { GivenFlag } from './flags/read.ts';
import { flag, group, atMost, usage } from './flags/table.ts';
import { SERVICE_FLAGS, VERBS } from './service/spec.ts';
import { BACKENDS } from './sinks/backends.ts';
import { toApi, toFile } from './sinks/whole-state.ts';
import { apiSource, fileSource, kubeSource, localSource } from './sources.ts';
import { packageText, programVersion } from './version.ts';

const cleanup: OtherCommand = {
  word: 'cleanup',
  summary: 'Remove the packet rules and addresses that a proxy has left',
  description: paragraphs`
    Rules and addresses outlive the proxy, so that a restart finds them in place. cleanup removes its packet
    rules, the addresses that it added to interfaces, and the interfaces that it made; nothing else. Running it
    again does no harm. A proxy that is still running puts everything back.`,
  examples: examples`cleanup # removes the rules of a proxy that has ended`,
  flags: CLEANUP_FLAGS,
  readsSettings: true,
  bind({ operands, read }) {
    atMost(0, operands, 'cleanup');
    const targets = read(CLEANUP_FLAGS);
    return async (streams) => (await import('./cleanup.ts')).cleanup(targets, streams);
  },
};

const service: OtherCommand = {
  word: 'service',
  summary: 'Run the program as a Windows service',
  forms: [
    'install [flags] -- <command line of the service>',
    'start|stop|status|uninstall [flags]',
  ],
  description: paragraphs`
    Windows runs a program as a service only through a wrapper that speaks to its service manager: NSSM
    (https://nssm.cc) or WinSW. install creates the service or changes it; start and stop wait until the service
    has started or stopped; each may be repeated. status prints absent, stopped, running, pausing or changing,
    and exits with 0 if the service is running and with 1 otherwise. Stopping drains connections.`,
  examples: examples`
    service install --name kpng -- kube --kubeconfig C:\\k\\config to-api # installs the controller
    service install --name winuserspace --depends-on kpng -- local to-winuserspace -v=2 # installs the proxy, which starts after the controller
    service start --name winuserspace # starts the proxy and what it depends on`,
  flags: SERVICE_FLAGS,
  bind({ operands, rest, read, parseRun }) {
    const [verb, ...extra] = operands.slice(0, operands.length - rest.length);
    const found = VERBS.find((each) => each === verb);
    if (found === undefined) throw usage(`service: expected one of ${VERBS.join(', ')}`);
    if (extra.length > 0) {
      throw usage(`service ${verb}: write "--" before the command line of the service`);
    }
    const values = read(SERVICE_FLAGS);
    if (values.winsw !== '' && found !== 'install') {
      throw usage('--winsw is for service install; WinSW does the rest');
    }
    if (found !== 'install') {
      if (rest.length > 0) throw usage(`service ${verb} takes no command line`);
    } else if (rest.length === 0) {
      throw usage('service install: write the command line of the service after "--"');
    } else {
      // Errors in the command line would only show when the service starts, where they are easily missed.
      parseRun(rest);
    }
    return async ({ stdout }) =>
      (await import('./service/command.ts')).runService(found, values, rest, { stdout });
  },
};

const config: OtherCommand = {
  word: 'config',
  summary: 'Check a configuration file, or print all settings in force',
  forms: [
    'validate FILE',
    `print [--output ${OUTPUT_FORMS.join('|')}] [<source> <backend>] [flags]`,
  ],
  description: paragraphs`
    validate reports all errors of a file, and settings without effect. print shows the settings that result
    from the command line, the environment and the file of --config, and where each comes from; with --output
    yaml it prints a file with the same settings. Without words, print shows the command of the file.`,
  examples: examples`
    config validate config.yaml # reports the errors of a file
    config print --config config.yaml --output yaml # shows the settings of the command of a file`,
  flags: {},
  readsSettings: true,
  bind({ operands: [form, ...operands], flags, configPath, ...line }) {
    if (form === 'validate') {
      const [file] = operands;
      if (file === undefined) throw usage('name the file: config validate FILE');
      atMost(1, operands, form);
      line.read({});
      return async (streams) => (await import('./validate.ts')).validateConfig(file, line, streams);
    }
    if (form !== 'print') throw usage('write config validate FILE or config print');
    // `to-file` has another --output, which is a path.
    const isForm = ({ name, text }: GivenFlag): boolean =>
      name === 'output' && OUTPUT_FORMS.some((each) => each === text);
    const output = SHOW_FLAGS.output.kind.parse(flags.findLast(isForm)?.text ?? 'table');
    const others = flags.filter((each) => !isForm(each));
    const bound = line.bindRun(operands, others);
    return async (streams) =>
      (await import('./validate.ts')).printConfig(bound, output, configPath, streams);
  },
};

const VALIDATE_FLAGS = group('Node', {
  'node-name': flag(text('name'), '', { aliases: NODE_FLAGS['node-name'].aliases ?? [] })`
    A node that the file must have.`,
});

const validate: OtherCommand = {
  word: 'validate',
  summary: 'Check a state file',
  forms: ['STATE_FILE [--node-name NAME]'],
  description: paragraphs`
    Reports all errors of a state file, with line and column, and parts without effect. The exit code is 2 if
    there are errors. config validate checks a configuration file.`,
  examples: examples`
    validate state.yaml # reports the errors of a file
    validate state.yaml --node-name node-1 # also checks that the file has the node`,
  flags: VALIDATE_FLAGS,
  bind({ operands, read }) {
    const [file] = operands;
    if (file === undefined) throw usage('name the file: validate STATE_FILE');
    atMost(1, operands, 'validate');
    const { nodeName } = read(VALIDATE_FLAGS);
    return async (streams) =>
      (await import('./validate.ts')).validateState(file, nodeName, streams);
  },
};

const SHELLS = ['bash', 'zsh', 'fish', 'powershell'];

const completion: OtherCommand = {
  word: 'completion',
  summary: 'Print a script that completes command lines in a shell',
  forms: [SHELLS.join('|')],
  description: paragraphs`
    The script asks the program for candidates, so it stays valid when the program is upgraded.`,
  examples: examples`
    completion bash # for bash: put source <(kpng-userspace completion bash) into ~/.bashrc
    completion zsh # for zsh: source <(kpng-userspace completion zsh), after compinit
    completion fish > ~/.config/fish/completions/kpng-userspace.fish # for fish
    completion powershell | Out-String | Invoke-Expression # for PowerShell, in $PROFILE`,
  flags: {},
  bind({ operands, read }) {
    const shell = SHELLS.find((each) => each === operands[0]);
    if (shell === undefined) throw usage(`completion: expected one of ${SHELLS.join(', ')}`);
    atMost(1, operands, shell);
    read({});
    return ({ stdout }) => {
      stdout.write(packageText(`completion/kpng-userspace.${shell}`, 'assets/'));
      return 0;
    };
  },
};

const version: OtherCommand = {
  word: 'version',
  summary: 'Print the version of the program and of Node',
  description: [],
  examples: examples`version # prints the versions`,
  flags: {},
  bind({ operands, read }) {
    atMost(0, operands, 'version');
    read({});
    return ({ stdout }) => {
      const { platform, arch, versions } = process;
      const engine = `node: ${versions.node}\nv8: ${versions.v8}`;
      stdout.write(
        `kpng-userspace: ${programVersion()}\n${engine}\nplatform: ${platform} ${arch}\n`,
      );
      return 0;
    };
  },
};

const sources: readonly SourceCommand[] = [kubeSource, fileSource, apiSource, localSource];
const sinks: readonly SinkCommand[] = [...BACKENDS, toApi, toFile];
const own = [cleanup, service, validate, config, completion, version];

/** Every word of the command line, in the order of the help text. */
export const REGISTRY = { sources, sinks, others: [...ADMIN_COMMANDS, ...own] };

export type Registry = typeof REGISTRY;

/** Hints for words that users of kpng may expect here. */
export function hintFor(word: string): string | undefined {
  if (word === 'demo') return 'part of a checkout; run npm run demo there';
  const isForeign = /^to-(?:iptables|ipvs|nft|ebpf|winkernel)$/.test(word);
  return isForeign ? 'a backend of kpng that this program does not have' : undefined;
}
