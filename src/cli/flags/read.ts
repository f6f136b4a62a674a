import { parseArgs, type ParseArgsConfig } from 'node:util';
import { fieldName, type FieldSchema } from '../../config/fields.ts';
import type { ConfigFile } from '../../config/file.ts';
import { messageOf } from '../../errors.ts';
import { closest } from '../../util/suggest.ts';
import { hidePasswords } from '../../util/terminal-text.ts';
import { formatted, isSwitch, usage, variableOf } from './table.ts';
import type { FlagSpec, FlagTable, FlagValues } from './table.ts';

/** Flags of kube-proxy and klog that this program does not have, by the reason why they have no effect; `?` marks boolean flags. */
const IGNORED: Readonly<Record<string, string>> = {
  'the log goes to standard error; use -v and --logging-format':
    'logtostderr? alsologtostderr? one-output? skip-headers? skip-log-headers? add-dir-header? ' +
    'log-json-split-stream? log-text-split-stream? stderrthreshold vmodule log-dir log-file ' +
    'log-file-max-size log-backtrace-at log-flush-frequency log-json-info-buffer-size ' +
    'log-text-info-buffer-size',
  'no packets are rewritten; --portal selects how clients reach the proxy':
    'masquerade-all? iptables-localhost-nodeports? ipvs-strict-arp? enable-dsr? ' +
    'forward-healthcheck-vip? iptables-masquerade-bit iptables-sync-period ' +
    'iptables-min-sync-period ipvs-exclude-cidrs ipvs-min-sync-period ipvs-scheduler ' +
    'ipvs-sync-period ipvs-tcp-timeout ipvs-tcpfin-timeout ipvs-udp-timeout ' +
    'nftables-masquerade-bit nftables-sync-period nftables-min-sync-period network-name ' +
    'root-hnsendpoint-name source-vip',
  'connections end in the proxy and need no conntrack settings':
    'conntrack-tcp-be-liberal? conntrack-max-per-core conntrack-min ' +
    'conntrack-tcp-timeout-close-wait conntrack-tcp-timeout-established conntrack-udp-timeout ' +
    'conntrack-udp-timeout-stream',
  'pods are recognized by --cluster-cidr and, with the source kube, the podCIDRs of the node':
    'detect-local-mode pod-bridge-interface pod-interface-name-prefix',
  'three watches need no rate limit and no resync':
    'kube-api-burst kube-api-content-type kube-api-qps config-sync-period',
  'addresses that cannot be bound are retried and reported by health': 'bind-address-hard-fail?',
  'there are no profiling pages': 'profiling?',
  'there are no feature gates': 'feature-gates',
  'no metrics are hidden': 'show-hidden-metrics-for-version',
};

/** The same, by what to use instead. They are refused. */
const REFUSED: typeof IGNORED = {
  'this program proxies in userspace only; leave the flag out and select with --portal how clients reach the proxy':
    'proxy-mode',
  'use the command cleanup': 'cleanup?',
  'no step needs privileges of its own': 'init-only?',
  'use config print --output yaml': 'write-config-to',
  'use the command service': 'windows-service?',
};

/** By name, with dashes; klog's spelling with underscores is equivalent. A boolean flag takes a value only after `=`. */
export const FOREIGN_FLAGS = new Map(
  [IGNORED, REFUSED].flatMap((names) =>
    Object.entries(names).flatMap(([why, list]) =>
      list.split(' ').map((name) => {
        const flag = { isSwitch: name.endsWith('?'), isRefused: names === REFUSED, why };
        return [name.replace('?', ''), flag] as const;
      }),
    ),
  ),
);

/** A flag with its value, to be shown. */
export type EffectiveSetting = Readonly<ReturnType<typeof readFlags>['settings'][number]>;

/** What sets a flag: `flag`, `environment KPNG_V`, `config.yaml:3 (logging.verbosity)`, with its field, or `default`. */
type Origin = { readonly text: string; readonly field?: string };

/**
 * Reads the flags of a table. A flag that is not given takes its value from the environment, then from the configuration file,
 * else its default. Throws a usage error that names the flag, the variable or the field.
 */
export function readFlags<Table extends FlagTable>(
  given: readonly GivenFlag[],
  table: Table,
  env: NodeJS.ProcessEnv = {},
  config?: ConfigFile,
) {
  const read = (name: string, spec: FlagSpec<unknown>): [value: unknown, origin: Origin] => {
    const written = given.filter((each) => each.name === name);
    if (written.length > 0) {
      const values = written.map((each) => parse(each.written, spec, each.text));
      return [spec.kind.joins === true ? values.flat() : values.at(-1), { text: 'flag' }];
    }
    for (const variable of [variableOf(name), spec.env ?? '']) {
      const text = env[variable];
      if (text === undefined) continue;
      const value = parse(`${variable} (for --${name})`, spec, text);
      return [value, { text: `environment ${variable}` }];
    }
    const setting = config?.settings.get(name);
    if (config === undefined || setting === undefined) return [spec.default, { text: 'default' }];
    const { field, text } = setting;
    const line = `${config.path}:${setting.line}`;
    return [parse(`${line}: ${field}`, spec, text), { text: `${line} (${field})`, field }];
  };
  const values: Record<string, unknown> = {};
  const settings = Object.entries(table).map(([flag, spec]) => {
    const [parsed, origin] = read(flag, spec);
    const field = fieldName(flag);
    values[field] = parsed;
    // As on the command line; empty: no value.
    const text = hidePasswords(formatted(spec, parsed));
    const value = jsonOf(parsed, text, spec.kind.schema);
    return { flag, field, text, value, origin, live: spec.live === true };
  });
  return { values: values as FlagValues<Table>, settings };
}

function parse(label: string, { kind }: FlagSpec<unknown>, text: string | undefined): unknown {
  if (text === undefined) throw usage(`${label} needs a value: ${label} <${kind.placeholder}>`);
  try {
    return kind.parse(text);
  } catch (error) {
    throw usage(`${label} ${JSON.stringify(text)}: ${messageOf(error)}`);
  }
}

/** A value for a configuration file. */
function jsonOf(parsed: unknown, text: string, { type, enum: words }: FieldSchema): unknown {
  // Neither would take an empty text.
  if (text === '' && (type === 'integer' || words !== undefined)) return null;
  if (type === 'integer' || type === 'boolean') return parsed;
  if (!Array.isArray(parsed)) return text;
  const items: readonly unknown[] = parsed;
  return items.every((item) => typeof item === 'string') ? items : text.split(',');
}

/** The variables that Kubernetes sets in pods for a Service whose name begins with `kpng`. */
const SERVICE_LINK = /^KPNG_(.*_)?(SERVICE_(HOST|PORT)(_.*)?|PORT(_\d+_(TCP|UDP|SCTP)(_.*)?)?)$/;

/** Variables with nearly the name of a flag, and the likely intended one; `flags`: those of all commands. */
export function misspeltVariables(env: NodeJS.ProcessEnv, flags: readonly string[]) {
  const known = flags.map(variableOf);
  return Object.keys(env).flatMap((variable) => {
    if (!variable.startsWith('KPNG_') || known.includes(variable)) return [];
    if (SERVICE_LINK.test(variable)) return [];
    const meant = closest(variable, known);
    return meant === undefined ? [] : [{ variable, meant }];
  });
}

/** A flag as written on a command line. */
export interface GivenFlag {
  /** Its canonical name, without dashes. */
  readonly name: string;
  /** As written, possibly an alias: `--tls-ca`. */
  readonly written: string;
  /** Undefined: the value is missing. */
  readonly text: string | undefined;
}

/**
 * Splits a command line with `util.parseArgs` into `words`, which are not flags, the `rest`, which follows `--`, and flags. The table
 * distinguishes flags with a value from those without, so flags may stand before, between and after the words.
 */
export function splitLine(argv: readonly string[], table: FlagTable) {
  const known = knownFlags(table);
  const end = argv.includes('--') ? argv.indexOf('--') : argv.length;
  const args = argv.slice(0, end).map((arg) => doubleDashed(arg, known));
  // A flag with a forgotten value must not consume the next flag. A lone dash and negative numbers are values.
  const forgotten = new Set(args.filter((_, index) => /^-[^\d.]/.test(args[index + 1] ?? '')));
  const options: NonNullable<ParseArgsConfig['options']> = {};
  for (const [name, { alone }] of known) {
    options[name] = { type: alone || forgotten.has(`--${name}`) ? 'boolean' : 'string' };
  }
  const { tokens } = parseArgs({ args, options, strict: false, tokens: true });
  const flags = tokens.flatMap((token): GivenFlag[] => {
    if (token.kind !== 'option') return [];
    const { name, alone } = known.get(token.name) ?? { name: token.name, alone: 'true' };
    return [{ name, written: token.rawName, text: token.value ?? alone }];
  });
  return {
    words: tokens.flatMap((token) => (token.kind === 'positional' ? [token.value] : [])),
    rest: argv.slice(end + 1),
    flags: flags.filter(({ name }) => name !== 'help'),
    help: flags.some(({ name }) => name === 'help'),
  };
}

/** As in Go, long flags may have one dash, and one-letter flags a value after `=`: `-v4` and `-v=4` as `--v=4`. */
function doubleDashed(arg: string, known: ReturnType<typeof knownFlags>): string {
  const [, written = '', value = ''] = /^-([^-=\d.][^=]*)(=.*)?$/s.exec(arg) ?? [];
  const flag = known.get(written);
  const letter = known.get(written.charAt(0));
  if (flag !== undefined) return `--${flag.name}${value}`;
  if (letter !== undefined) return `--${letter.name}=${arg.slice(2)}`;
  return written === '' ? arg : `-${arg}`;
}

/** The flags by name, alias and letter; `alone`: the value of one without a value. */
function knownFlags(table: FlagTable) {
  const known = new Map<string, { readonly name: string; readonly alone: string | undefined }>();
  const add = (isAlone: boolean, name: string, ...others: readonly string[]): void => {
    for (const each of [name, ...others])
      known.set(each, { name, alone: isAlone ? 'true' : undefined });
  };
  add(true, 'help', 'h');
  for (const [name, foreign] of FOREIGN_FLAGS)
    add(foreign.isSwitch, name, name.replaceAll('-', '_'));
  for (const [name, { kind, short, aliases = [] }] of Object.entries(table)) {
    add(isSwitch(kind), name, ...aliases, short ?? name);
  }
  return known;
}
