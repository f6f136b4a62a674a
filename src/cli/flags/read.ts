import { parseArgs, type ParseArgsConfig } from 'node:util';
import { fieldName } from '../../config/fields.ts';
import type { ConfigFile } from '../../config/file.ts';
import { KpngError, messageOf } from '../../errors.ts';
import { closest } from '../../util/suggest.ts';
import {
  type FlagSpec,
  type FlagTable,
  type FlagValues,
  isSwitch,
  type Origin,
  settingOf,
  variableOf,
} from './table.ts';

/** A flag of kube-proxy or klog that this program does not have. */
export interface ForeignFlag {
  /** Whether it is a boolean flag, which takes a value only after `=`. */
  readonly isSwitch: boolean;
  /** Why it has no effect, or the alternative. */
  readonly why: string;
  /** Whether a value is refused. Absent: every value is accepted, with a warning. */
  readonly refuses?: (value: string) => boolean;
}

/** By the reason why they have no effect; `?` marks boolean flags. */
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

/** The same, by what to use instead. */
const REFUSED: Readonly<Record<string, string>> = {
  'use the command cleanup': 'cleanup?',
  'no step needs privileges of its own': 'init-only?',
  'use config print --output yaml': 'write-config-to',
  'use the command service': 'windows-service?',
};

const MODE =
  'this program proxies in userspace only; leave the flag out and select with --portal how clients ' +
  'reach the proxy';

/** By name, with dashes; klog's spelling with underscores is equivalent. */
export const FOREIGN_FLAGS: ReadonlyMap<string, ForeignFlag> = new Map([
  ...foreign(IGNORED),
  ...foreign({ [MODE]: 'proxy-mode' }, (mode) => mode !== '' && mode !== 'userspace'),
  ...foreign(REFUSED, () => true),
]);

function foreign(names: Readonly<Record<string, string>>, refuses?: ForeignFlag['refuses']) {
  return Object.entries(names).flatMap(([why, list]) =>
    list.split(' ').map((name): [string, ForeignFlag] => {
      const flag = { isSwitch: name.endsWith('?'), why, ...(refuses && { refuses }) };
      return [name.replace('?', ''), flag];
    }),
  );
}

export type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Reads the flags of a table. A flag that is not given takes its value from the environment, then from the configuration file,
 * else its default. Throws a usage error that names the flag, the variable or the field.
 */
export function readFlags<Table extends FlagTable>(
  given: readonly GivenFlag[],
  table: Table,
  env: Environment = {},
  config?: ConfigFile,
) {
  const read = (name: string, spec: FlagSpec<unknown>): [value: unknown, origin: Origin] => {
    const values = given
      .filter((each) => each.name === name)
      .map(({ text, written }) => {
        if (text !== undefined) return parse(written, spec, text);
        throw usage(`${written} needs a value: ${written} <${spec.kind.placeholder}>`);
      });
    if (values.length > 0) {
      const value = spec.kind.joins === true ? values.flat() : values.at(-1);
      return [value, { kind: 'flag', text: 'flag' }];
    }
    for (const variable of [variableOf(name), spec.env ?? '']) {
      const text = env[variable];
      if (text === undefined) continue;
      const value = parse(`${variable} (for --${name})`, spec, text);
      return [value, { kind: 'env', text: `environment ${variable}` }];
    }
    const setting = config?.settings.get(name);
    if (config === undefined || setting === undefined) {
      return [spec.default, { kind: 'default', text: 'default' }];
    }
    const { field, text } = setting;
    const line = `${config.path}:${setting.line}`;
    const value = parse(`${line}: ${field}`, spec, text);
    return [value, { kind: 'file', text: `${line} (${field})`, field }];
  };
  const values: [field: string, value: unknown][] = [];
  const settings = Object.entries(table).map(([name, spec]) => {
    const [value, origin] = read(name, spec);
    values.push([fieldName(name), value]);
    return settingOf(name, spec, value, origin);
  });
  return { values: Object.fromEntries(values) as FlagValues<Table>, settings };
}

function parse(label: string, { kind }: FlagSpec<unknown>, text: string): unknown {
  try {
    return kind.parse(text);
  } catch (error) {
    throw usage(`${label} ${JSON.stringify(text)}: ${messageOf(error)}`);
  }
}

export function usage(message: string): KpngError {
  return new KpngError('KPNG_USAGE', message);
}

/** Throws if more than `most` words follow a command. */
export function atMost(most: number, operands: readonly string[], command: string): void {
  if (operands.length <= most) return;
  const after = [command, ...operands][most] ?? command;
  const words = operands.slice(most).map((word) => JSON.stringify(word));
  throw usage(`only flags may follow ${after}: ${words.join(' ')}`);
}

/** The variables that Kubernetes sets in pods for a Service whose name begins with `kpng`. */
const SERVICE_LINK = /^KPNG_(.*_)?(SERVICE_(HOST|PORT)(_.*)?|PORT(_\d+_(TCP|UDP|SCTP)(_.*)?)?)$/;

/** Variables with nearly the name of a flag, and the likely intended one; `flags`: those of all commands. */
export function misspeltVariables(env: Environment, flags: readonly string[]) {
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
