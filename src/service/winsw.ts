import { commandLine } from './command-line.ts';
import type { ServiceSpec, StartMode } from './spec.ts';

const START: Readonly<Record<StartMode, string>> = {
  'delayed-auto': 'Automatic',
  auto: 'Automatic',
  demand: 'Manual',
};

/** The definition of a service for WinSW 2 or 3: a file beside the executable of WinSW, of the same name. */
export function winswDefinition(spec: ServiceSpec): string {
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
    `  ${element('sizeThreshold', String(Math.max(1, Math.round(spec.logBytes / 1024))))}`,
    '  <keepFiles>8</keepFiles>',
    '</log>',
    `<onfailure action="restart" delay="${spec.restartDelayMs} ms"/>`,
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

function escaped(text: string): string {
  return text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;');
}
