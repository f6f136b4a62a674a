import { win32 } from 'node:path';
import { commandLine } from './command-line.ts';
import type { ServiceSpec, StartMode } from './spec.ts';

const START: Readonly<Record<StartMode, string>> = {
  'delayed-auto': 'SERVICE_DELAYED_AUTO_START',
  auto: 'SERVICE_AUTO_START',
  demand: 'SERVICE_DEMAND_START',
};

/**
 * Skips WM_CLOSE and WM_QUIT, which are for windows: NSSM sends only Ctrl-C, and then terminates the program if it
 * does not stop in time.
 */
const SKIP_WINDOWS = '6';

/** The NSSM arguments that create the service; with `isThere`, that change the existing one. */
export function installCommands(spec: ServiceSpec, isThere: boolean): string[][] {
  const { name } = spec;
  const first = isThere
    ? ['set', name, 'Application', spec.program]
    : ['install', name, spec.program];
  return [first, ...settings(spec).map((setting) => withName(setting, name))];
}

/** `set NAME VALUE…` or `reset NAME`, without the name of the service. */
function settings(spec: ServiceSpec): [string, ...string[]][] {
  const log = win32.join(spec.logDirectory, `${spec.name}.log`);
  const stop = String(spec.stopTimeoutMs);
  return [
    // NSSM passes this text on unchanged, so it has to contain the quotes. `install` would lose them.
    ['set', 'AppParameters', commandLine(spec.args)],
    ['set', 'AppDirectory', spec.directory],
    ['set', 'DisplayName', spec.displayName],
    ['set', 'Description', spec.description],
    ['set', 'Start', START[spec.start]],
    ['set', 'AppStdout', log],
    ['set', 'AppStderr', log],
    ['set', 'AppRotateFiles', '1'],
    ['set', 'AppRotateOnline', '1'],
    ['set', 'AppRotateBytes', String(spec.logBytes)],
    listed('AppEnvironmentExtra', spec.environment),
    listed('DependOnService', spec.dependsOn),
    ['set', 'AppStopMethodSkip', SKIP_WINDOWS],
    ['set', 'AppStopMethodConsole', stop],
    ['set', 'AppRestartDelay', String(spec.restartDelayMs)],
    ['set', 'AppExit', 'Default', 'Restart'],
    // A normal end, by `stop` over the admin pipe.
    ['set', 'AppExit', '0', 'Exit'],
    // A restart does not fix a wrong command line or configuration.
    ['set', 'AppExit', '2', 'Exit'],
  ];
}

function listed(setting: string, values: readonly string[]): [string, ...string[]] {
  return values.length === 0 ? ['reset', setting] : ['set', setting, ...values];
}

function withName([verb, ...rest]: readonly [string, ...string[]], name: string): string[] {
  return [verb, name, ...rest];
}
