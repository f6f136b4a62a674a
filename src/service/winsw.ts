import { KpngError } from '../errors.ts';
import { commandLine, type ServiceSpec, type StartMode } from './spec.ts';

const START: Readonly<Record<StartMode, string>> = {
  'delayed-auto': 'Automatic',
  auto: 'Automatic',
  demand: 'Manual',
};

/**
 * WinSW restarts the service after any exit code, so the delays grow: a wrong configuration must not be retried every
 * two seconds indefinitely. Milliseconds, of the second and all later failures; the service counts as recovered after an
 * hour.
 */
const LATER_MS = [10_000, 60_000] as const;
const RESET_FAILURE = '1 hour';

/** WinSW counts in bytes, as a whole number of 32 bits. Kilobytes. */
const MAX_LOG_KB = 2_097_151;

/**
 * The definition of a service for WinSW 2 or 3: a file beside the executable of WinSW, of the same name. Throws
 * KPNG_USAGE for control characters, which XML does not allow.
 */
export function winswDefinition(spec: ServiceSpec): string {
  const logKilobytes = Math.min(MAX_LOG_KB, Math.max(1, Math.round(spec.logBytes / 1024)));
  const lines = [
    element('id', spec.name),
    element('name', spec.displayName),
    element('description', spec.description),
    element('executable', spec.program),
    element('arguments', commandLine(spec.args)),
    element('workingdirectory', spec.directory),
    element('startmode', START[spec.start]),
    ...(spec.start === 'delayed-auto' ? [element('delayedAutoStart', 'true')] : []),
    ...spec.dependsOn.map((name) => element('depend', name)),
    ...spec.environment.map(variable),
    element('logpath', spec.logDirectory),
    '<log mode="roll-by-size">',
    `  ${element('sizeThreshold', String(logKilobytes))}`,
    '  <keepFiles>8</keepFiles>',
    '</log>',
    ...[0, ...LATER_MS].map((least) => {
      return `<onfailure action="restart" delay="${Math.max(least, spec.restartDelayMs)} ms"/>`;
    }),
    element('resetfailure', RESET_FAILURE),
    element('stoptimeout', `${spec.stopTimeoutMs} ms`),
  ];
  return ['<service>', ...lines.map((line) => `  ${line}`), '</service>', ''].join('\r\n');
}

function element(name: string, text: string): string {
  return `<${name}>${escaped(text)}</${name}>`;
}

function variable(setting: string): string {
  const at = setting.indexOf('=');
  return `<env name="${escaped(setting.slice(0, at))}" value="${escaped(setting.slice(at + 1))}"/>`;
}

/** Line breaks and tabs become character references, since XML readers normalize them to blanks. */
function escaped(text: string): string {
  // oxlint-disable-next-line no-control-regex -- they are what is looked for
  const bad = /[\u0000-\u0008\v\f\u000e-\u001f\ufffe\uffff]/.exec(text)?.[0];
  if (bad !== undefined) {
    const code = bad.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0');
    throw new KpngError('KPNG_USAGE', `a definition for WinSW cannot have the character U+${code}`);
  }
  return text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
    .replaceAll(/[\t\n\r]/g, (space) => `&#${space.charCodeAt(0)};`);
}
