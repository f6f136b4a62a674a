import { KpngError } from '../../errors.ts';
import { choice, duration, list, size, text } from '../flags/kinds.ts';
import { flag, type FlagValues, group } from '../flags/table.ts';

export const VERBS = ['install', 'uninstall', 'start', 'stop', 'status'] as const;
export type Verb = (typeof VERBS)[number];

const name = text('name', (given) => {
  if (/^[\w.-]{1,80}$/.test(given)) return;
  throw new Error('expected up to 80 letters, digits and any of _ . -');
});

/** The flag may be repeated, and a comma is part of the value. */
const settings = list('NAME=value', checkSetting, (given) => [given]);

function checkSetting(given: string): void {
  if (/^[^=\s]+=/.test(given)) return;
  throw new Error('expected a variable and its value, such as NAME=value');
}

export const SERVICE_FLAGS = group('Service', {
  name: flag(name, 'kpng-userspace')`Name of the service, and of its log file.`,
  'display-name': flag(text('text'), '')`
    Name in lists of services. Empty: the name of the service.`,
  'depends-on': flag<readonly string[]>(list('names'), [])`
    Services that must be running first, such as the controller.`,
  start: flag(choice(['delayed-auto', 'auto', 'demand']), 'delayed-auto')`
    When Windows starts it: some time after boot, at boot, or on demand.`,
  env: flag<readonly string[]>(settings, [])`Environment variable of the service; may be repeated.`,
  'log-dir': flag(text('path'), '')`
    Folder of the log file; created if missing. Empty: kpng-userspace\\logs in %ProgramData%.`,
  'log-size': flag(size(65_536), 10 * 1024 * 1024)`Size at which the log file is rotated.`,
  'restart-delay': flag(duration(), 2000)`Delay before a service that exited is restarted.`,
  'stop-timeout': flag(duration(1), 15_000)`
    How long stopping may take before the process is killed; longer than its --drain-timeout.`,
  nssm: flag(text('path'), '')`
    nssm.exe, 2.24 or later. Empty: beside this program, else on the PATH.`,
  winsw: flag(text('folder'), '')`
    Write a definition for WinSW into this folder instead of using NSSM; for install only.`,
});

export type ServiceValues = FlagValues<typeof SERVICE_FLAGS>;

/** A Windows service, in its desired state: no value is left to a default. */
export interface ServiceSpec extends ServiceValues {
  readonly description: string;
  readonly program: string;
  /** Its arguments, unquoted. */
  readonly args: readonly string[];
  readonly directory: string;
}

/**
 * Joins arguments into one text in the way that Windows programs split it: in quotes if there is a blank, with a backslash
 * before each quote, and backslashes before a quote doubled.
 */
export function commandLine(args: readonly string[]): string {
  const quoted = args.map((arg) => {
    if (/^[^\s"]+$/.test(arg)) return arg;
    return `"${arg.replaceAll(/(\\*)"/g, String.raw`$1$1\"`).replace(/(\\+)$/, '$1$1')}"`;
  });
  return quoted.join(' ');
}

/**
 * WinSW restarts the service after any exit code, so the delays grow: a wrong configuration must not be retried every
 * two seconds indefinitely. Milliseconds at least, of the first, the second and all later failures.
 */
const DELAYS_MS = [0, 10_000, 60_000];

/** WinSW counts in bytes, as a whole number of 32 bits. Kilobytes. */
const MAX_LOG_KB = 2_097_151;

/**
 * The definition of a service for WinSW 2 or 3: a file beside the executable of WinSW, of the same name. Throws
 * KPNG_USAGE for control characters, which XML does not allow.
 */
export function winswDefinition(spec: ServiceSpec): string {
  const logKilobytes = Math.min(MAX_LOG_KB, Math.max(1, Math.round(spec.logSize / 1024)));
  const lines = [
    element('id', spec.name),
    element('name', spec.displayName),
    element('description', spec.description),
    element('executable', spec.program),
    element('arguments', commandLine(spec.args)),
    element('workingdirectory', spec.directory),
    element('startmode', spec.start === 'demand' ? 'Manual' : 'Automatic'),
    ...(spec.start === 'delayed-auto' ? [element('delayedAutoStart', 'true')] : []),
    ...spec.dependsOn.map((name) => element('depend', name)),
    ...spec.env.map((setting) => {
      const [, name = '', value = ''] = /^([^=]*)=(.*)$/s.exec(setting) ?? [];
      return `<env name="${escaped(name)}" value="${escaped(value)}"/>`;
    }),
    element('logpath', spec.logDir),
    '<log mode="roll-by-size">',
    `  ${element('sizeThreshold', String(logKilobytes))}`,
    '  <keepFiles>8</keepFiles>',
    '</log>',
    ...DELAYS_MS.map(
      (least) => `<onfailure action="restart" delay="${Math.max(least, spec.restartDelay)} ms"/>`,
    ),
    '<resetfailure>1 hour</resetfailure>',
    element('stoptimeout', `${spec.stopTimeout} ms`),
  ];
  return ['<service>', ...lines.map((line) => `  ${line}`), '</service>', ''].join('\r\n');
}

function element(name: string, text: string): string {
  return `<${name}>${escaped(text)}</${name}>`;
}

/** As character references: also line breaks and tabs, since XML readers normalize them to blanks. */
function escaped(text: string): string {
  // oxlint-disable-next-line no-control-regex -- they are what is looked for
  const bad = /[\u0000-\u0008\v\f\u000e-\u001f\ufffe\uffff]/.exec(text)?.[0];
  if (bad !== undefined) {
    const code = bad.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0');
    throw new KpngError('KPNG_USAGE', `a definition for WinSW cannot have the character U+${code}`);
  }
  return text.replaceAll(/[&<>"\t\n\r]/g, (char) => `&#${char.charCodeAt(0)};`);
}
