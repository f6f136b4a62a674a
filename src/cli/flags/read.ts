import { parseArgs, type ParseArgsConfig } from 'node:util';
import type { ConfigFile } from '../../config/file.ts';
import { KpngError, messageOf } from '../../errors.ts';
import { closest } from '../../util/suggest.ts';
import {
  type FlagSpec,
  type FlagTable,
  labelOf,
  type Origin,
  type RawValues,
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

/** Flags without effect for the same reason. */
export interface IgnoredFlags {
  readonly flags: readonly string[];
  readonly why: string;
}

const LOG = 'the log goes to standard error; use -v and --logging-format';
const PACKETS = 'no packets are rewritten; --portal selects how clients reach the proxy';
const CONNTRACK = 'connections end in the proxy and need no conntrack settings';
const LOCAL =
  'pods are recognized by --cluster-cidr and, with the source kube, the podCIDRs of the node';
const API = 'three watches need no rate limit and no resync';

const SWITCHES: Readonly<Record<string, string>> = {
  [LOG]:
    'logtostderr alsologtostderr one-output skip-headers skip-log-headers add-dir-header ' +
    'log-json-split-stream log-text-split-stream',
  [PACKETS]:
    'masquerade-all iptables-localhost-nodeports ipvs-strict-arp enable-dsr forward-healthcheck-vip',
  [CONNTRACK]: 'conntrack-tcp-be-liberal',
  'addresses that cannot be bound are retried and reported by health': 'bind-address-hard-fail',
  'there are no profiling pages': 'profiling',
};

const VALUES: Readonly<Record<string, string>> = {
  [LOG]:
    'stderrthreshold vmodule log-dir log-file log-file-max-size log-backtrace-at log-flush-frequency ' +
    'log-json-info-buffer-size log-text-info-buffer-size',
  [PACKETS]:
    'iptables-masquerade-bit iptables-sync-period iptables-min-sync-period ipvs-exclude-cidrs ' +
    'ipvs-min-sync-period ipvs-scheduler ipvs-sync-period ipvs-tcp-timeout ipvs-tcpfin-timeout ' +
    'ipvs-udp-timeout nftables-masquerade-bit nftables-sync-period nftables-min-sync-period ' +
    'network-name root-hnsendpoint-name source-vip',
  [CONNTRACK]:
    'conntrack-max-per-core conntrack-min conntrack-tcp-timeout-close-wait ' +
    'conntrack-tcp-timeout-established conntrack-udp-timeout conntrack-udp-timeout-stream',
  [LOCAL]: 'detect-local-mode pod-bridge-interface pod-interface-name-prefix',
  [API]: 'kube-api-burst kube-api-content-type kube-api-qps config-sync-period',
  'there are no feature gates': 'feature-gates',
  'no metrics are hidden': 'show-hidden-metrics-for-version',
};

const always = (): boolean => true;

/** By name, with dashes; klog's spelling with underscores is equivalent. */
export const FOREIGN_FLAGS: ReadonlyMap<string, ForeignFlag> = new Map<string, ForeignFlag>([
  ...named(SWITCHES, true),
  ...named(VALUES, false),
  [
    'proxy-mode',
    {
      isSwitch: false,
      why:
        'this program proxies in userspace only; leave the flag out and select with --portal how clients ' +
        'reach the proxy',
      refuses: (mode) => mode !== '' && mode !== 'userspace',
    },
  ],
  ['cleanup', { isSwitch: true, why: 'use the command cleanup', refuses: always }],
  ['init-only', { isSwitch: true, why: 'no step needs privileges of its own', refuses: always }],
  ['write-config-to', { isSwitch: false, why: 'use config print --output yaml', refuses: always }],
  ['windows-service', { isSwitch: true, why: 'use the command service', refuses: always }],
]);

function named(
  names: Readonly<Record<string, string>>,
  isSwitch: boolean,
): [string, ForeignFlag][] {
  return Object.entries(names).flatMap(([why, list]) =>
    list.split(' ').map((name): [string, ForeignFlag] => [name, { isSwitch, why }]),
  );
}

export type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Reads the flags of a table. A flag that is not given takes its value from the environment, then from the configuration file.
 * Throws a usage error that names the flag, the variable or the field.
 */
export function readFlags(
  given: readonly GivenFlag[],
  table: FlagTable,
  env: Environment = {},
  config?: ConfigFile,
): RawValues {
  const values = new Map<string, { value: unknown; origin: Origin }>();
  for (const [name, spec] of Object.entries(table)) {
    for (const { text, written } of given.filter((each) => each.name === name)) {
      if (text === undefined) {
        throw usage(`${written} needs a value: ${written} <${spec.kind.placeholder}>`);
      }
      const value = convert(written, spec, text);
      const earlier = values.get(name);
      const merged = earlier && spec.kind.merge?.(earlier.value, value);
      values.set(name, { value: merged ?? value, origin: { kind: 'flag', written } });
    }
    if (values.has(name)) continue;
    const found = fallback(name, spec, env, config);
    if (found === undefined) continue;
    const { origin } = found;
    const label = labelOf(origin) + (origin.kind === 'env' ? ` (for --${name})` : '');
    values.set(name, { value: convert(label, spec, found.text), origin });
  }
  return values;
}

/** What sets a flag that the command line does not. */
function fallback(
  name: string,
  spec: FlagSpec<unknown>,
  env: Environment,
  config: ConfigFile | undefined,
): { readonly text: string; readonly origin: Origin } | undefined {
  for (const variable of [variableOf(name), spec.env ?? '']) {
    const text = env[variable];
    if (text !== undefined) return { text, origin: { kind: 'env', variable } };
  }
  const setting = config?.settings.get(name);
  if (config === undefined || setting === undefined) return undefined;
  const { text, field, line } = setting;
  return { text, origin: { kind: 'file', path: config.path, line, field } };
}

function convert(label: string, spec: FlagSpec<unknown>, text: string): unknown {
  try {
    return spec.kind.parse(text);
  } catch (error) {
    throw usage(`${label} ${JSON.stringify(text)}: ${messageOf(error)}`);
  }
}

export function usage(message: string): KpngError {
  return new KpngError('KPNG_USAGE', message);
}

/** Throws if more than `most` words follow a command. */
export function atMost(most: number, operands: readonly string[], command: string): void {
  const after = [command, ...operands][most];
  if (operands.length > most) throw tooMany(operands.slice(most), after ?? command);
}

export function tooMany(words: readonly string[], after: string): Error {
  return usage(
    `only flags may follow ${after}: ${words.map((word) => JSON.stringify(word)).join(' ')}`,
  );
}

/** An environment variable that no flag reads, and the likely intended one. */
export interface MisspeltVariable {
  readonly variable: string;
  readonly meant: string;
}

/** The variables that Kubernetes sets in pods for a Service whose name begins with `kpng`. */
const SERVICE_LINK = /^KPNG_(.*_)?(SERVICE_(HOST|PORT)(_.*)?|PORT(_\d+_(TCP|UDP|SCTP)(_.*)?)?)$/;

/** Variables with nearly the name of a flag; `flags`: those of all commands. */
export function misspeltVariables(env: Environment, flags: readonly string[]): MisspeltVariable[] {
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

export interface SplitLine {
  /** Arguments that are not flags, in order: `file`, `to-userspace`. */
  readonly words: readonly string[];
  readonly rest: readonly string[];
  readonly flags: readonly GivenFlag[];
  readonly help: boolean;
}

/**
 * Splits a command line with `util.parseArgs`. The table distinguishes flags with a value from those without, so flags
 * may stand before, between and after the words. As in Go, long flags may have one dash, and one-letter flags a
 * value after `=`.
 */
export function splitLine(argv: readonly string[], table: FlagTable): SplitLine {
  const { options, names } = optionsOf(table);
  const end = argv.indexOf('--');
  const args = argv.map((arg, index) =>
    end === -1 || index < end ? doubleDashed(arg, names) : arg,
  );
  const { tokens } = parseArgs({ args, options, strict: false, tokens: true });
  const words: string[] = [];
  const rest: string[] = [];
  const flags: GivenFlag[] = [];
  let help = false;
  let isRest = false;
  for (const token of tokens) {
    if (token.kind === 'option-terminator') isRest = true;
    else if (token.kind === 'positional') (isRest ? rest : words).push(token.value);
    else if (token.name === 'help') help = true;
    else {
      const name = names.get(token.name) ?? token.name;
      const bare = Object.hasOwn(table, name) ? table[name]?.kind.bare : 'true';
      flags.push({ name, written: token.rawName, text: valueOf(token, bare) });
    }
  }
  return { words, rest, flags, help };
}

function valueOf(
  token: { readonly value: string | undefined; readonly inlineValue: boolean | undefined },
  bare: string | undefined,
): string | undefined {
  if (token.value === undefined) return bare;
  // A flag with a forgotten value must not consume the next flag. A lone dash and negative numbers are values.
  return token.inlineValue === false && /^-[^\d.]/.test(token.value) ? undefined : token.value;
}

/** The options for parseArgs, and the flag's name for each name and letter. */
function optionsOf(table: FlagTable) {
  const options: NonNullable<ParseArgsConfig['options']> = {};
  const names = new Map<string, string>();
  const add = (
    name: string,
    type: 'boolean' | 'string',
    aliases: readonly string[],
    short?: string,
  ): void => {
    for (const each of [name, ...aliases]) {
      options[each] = { type };
      names.set(each, name);
    }
    if (short === undefined) return;
    options[name] = { type, short };
    names.set(short, name);
  };
  add('help', 'boolean', [], 'h');
  for (const [name, { isSwitch }] of FOREIGN_FLAGS) {
    add(name, isSwitch ? 'boolean' : 'string', [name.replaceAll('-', '_')]);
  }
  for (const [name, { kind, short, aliases = [] }] of Object.entries(table)) {
    add(name, kind.bare === undefined ? 'string' : 'boolean', aliases, short);
  }
  return { options, names };
}

/** `-flag=value` as `--flag=value`; `-v=4` as `--v=4`. `-v4` and negative numbers stay. */
function doubleDashed(arg: string, names: ReadonlyMap<string, string>): string {
  const [, given = '', value = ''] = /^-([^-=\d.][^=]*)(=.*)?$/s.exec(arg) ?? [];
  if (given === '') return arg;
  const name = names.get(given);
  if (name !== undefined) return `--${name}${value}`;
  return names.has(given.charAt(0)) ? arg : `-${arg}`;
}
