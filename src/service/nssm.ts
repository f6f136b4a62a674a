import { win32 } from 'node:path';
import { KpngError } from '../errors.ts';
import { ExecError, type Exec } from '../portal/exec.ts';
import type { Clock } from '../util/clock.ts';
import { commandLine, type ServiceSpec, type ServiceState, type StartMode } from './spec.ts';

export interface NssmOptions {
  /** Name or path of NSSM. */
  readonly program: string;
  readonly exec: Exec;
  readonly clock: Clock;
}

/** What NSSM calls the states of a service. */
const STATES: Readonly<Record<string, ServiceState>> = {
  SERVICE_STOPPED: 'stopped',
  SERVICE_RUNNING: 'running',
  SERVICE_PAUSED: 'pausing',
  SERVICE_START_PENDING: 'changing',
  SERVICE_STOP_PENDING: 'changing',
  SERVICE_PAUSE_PENDING: 'changing',
  SERVICE_CONTINUE_PENDING: 'changing',
};

/** Interval and limit of the waits for a state. Milliseconds. */
const POLL_MS = 250;
const TIMEOUT_MS = 30_000;
/** A service killed after its time limit needs a moment to end. Milliseconds. */
const KILL_MS = 15_000;

/**
 * Windows services through NSSM, 2.24 or later. Everything is idempotent. The results of starting and stopping are
 * read from the service's state, since NSSM stops waiting after a while.
 *
 * Methods reject with KPNG_WRAPPER_FAILED.
 */
export function createNssm({ program, exec, clock }: NssmOptions) {
  const run = async (doing: string, ...args: readonly string[]): Promise<string> => {
    try {
      return plain((await exec({ file: program, args, timeoutMs: 120_000 })).stdout).trim();
    } catch (error) {
      throw error instanceof ExecError ? failed(error, doing, program) : error;
    }
  };

  const status = async (name: string): Promise<ServiceState> => {
    const doing = `asking for the service ${name}`;
    try {
      const found = await run(doing, 'status', name);
      const state = STATES[found];
      if (state !== undefined) return state;
      throw wrapperFailed(`${doing}: NSSM says ${JSON.stringify(found.slice(0, 200))}`);
    } catch (error) {
      if (isNoService(error)) return 'absent';
      throw error;
    }
  };

  const existing = async (name: string): Promise<ServiceState> => {
    const state = await status(name);
    if (state === 'absent') throw wrapperFailed(`there is no service ${name}`);
    return state;
  };

  /** Runs a command and waits for the state, which decides; NSSM's failure only explains. */
  const bring = async (name: string, verb: 'start' | 'stop', timeoutMs: number): Promise<void> => {
    const [doing, wanted, problem, hint] =
      verb === 'start'
        ? (['starting', 'running', 'does not run', '; see its log file'] as const)
        : (['stopping', 'stopped', 'has not stopped', ''] as const);
    const failure = await run(`${doing} the service ${name}`, verb, name).then(
      () => undefined,
      (error: unknown) => {
        if (error instanceof KpngError) return error;
        throw error;
      },
    );
    const end = clock.now() + timeoutMs;
    for (;;) {
      const state = await status(name);
      if (state === wanted) return;
      const over = wanted === 'running' && (state === 'stopped' || state === 'pausing');
      if (over || clock.now() >= end) {
        const before = failure === undefined ? '' : `${failure.message}; `;
        const message = `${before}the service ${name} ${problem}, it is ${state}${hint}`;
        throw wrapperFailed(message, failure);
      }
      await new Promise<void>((resolve) => clock.setTimer(POLL_MS, resolve));
    }
  };

  const stopFrom = async (name: string, state: ServiceState): Promise<void> => {
    if (state === 'absent' || state === 'stopped') return;
    const drain = Number(
      await run(`reading the service ${name}`, 'get', name, 'AppStopMethodConsole'),
    );
    await bring(name, 'stop', (drain || TIMEOUT_MS) + KILL_MS);
  };

  return {
    status,

    /** Creates or changes the service. Resolves with whether it existed. */
    async install(spec: ServiceSpec): Promise<boolean> {
      const isThere = (await status(spec.name)) !== 'absent';
      for (const args of installCommands(spec, isThere)) {
        await run(`installing the service ${spec.name}`, ...args);
      }
      return isThere;
    },

    /** Stops the service and removes it. Resolves with whether there was one. */
    async uninstall(name: string): Promise<boolean> {
      const state = await status(name);
      if (state === 'absent') return false;
      await stopFrom(name, state);
      await run(`removing the service ${name}`, 'remove', name, 'confirm');
      return true;
    },

    async start(name: string): Promise<void> {
      if ((await existing(name)) === 'running') return;
      await bring(name, 'start', TIMEOUT_MS);
    },

    /** Resolves when the service has stopped; waits as long as NSSM lets it drain. */
    async stop(name: string): Promise<void> {
      await stopFrom(name, await existing(name));
    },
  };
}

const START: Readonly<Record<StartMode, string>> = {
  'delayed-auto': 'SERVICE_DELAYED_AUTO_START',
  auto: 'SERVICE_AUTO_START',
  demand: 'SERVICE_DEMAND_START',
};

/** The NSSM arguments that create the service; with `isThere`, that change the existing one. */
export function installCommands(spec: ServiceSpec, isThere: boolean): string[][] {
  const { name } = spec;
  const log = win32.join(spec.logDirectory, `${name}.log`);
  const set = (...setting: readonly string[]): string[] => ['set', name, ...setting];
  const list = (setting: string, values: readonly string[]): string[] =>
    values.length === 0 ? ['reset', name, setting] : set(setting, ...values);
  return [
    isThere ? set('Application', spec.program) : ['install', name, spec.program],
    // NSSM passes this text on unchanged, so it has to contain the quotes. `install` would lose them.
    set('AppParameters', commandLine(spec.args)),
    set('AppDirectory', spec.directory),
    set('DisplayName', spec.displayName),
    set('Description', spec.description),
    set('Start', START[spec.start]),
    set('AppStdout', log),
    set('AppStderr', log),
    set('AppRotateFiles', '1'),
    set('AppRotateOnline', '1'),
    set('AppRotateBytes', String(spec.logBytes)),
    list('AppEnvironmentExtra', spec.environment),
    list('DependOnService', spec.dependsOn),
    // Skips WM_CLOSE and WM_QUIT, which are for windows: NSSM sends only Ctrl-C, and kills what does not stop in time.
    set('AppStopMethodSkip', '6'),
    set('AppStopMethodConsole', String(spec.stopTimeoutMs)),
    set('AppRestartDelay', String(spec.restartDelayMs)),
    set('AppExit', 'Default', 'Restart'),
    // A normal end, by `stop` over the admin pipe.
    set('AppExit', '0', 'Exit'),
    // A restart does not fix a wrong command line or configuration.
    set('AppExit', '2', 'Exit'),
  ];
}

/** NSSM prints UTF-16 unless it prints to a console. */
function plain(text: string): string {
  return text.replaceAll('\0', '');
}

function wrapperFailed(message: string, cause?: unknown): KpngError {
  return new KpngError('KPNG_WRAPPER_FAILED', message, { cause });
}

function failed(cause: ExecError, doing: string, program: string): KpngError {
  if (cause.failure === 'missing') {
    return wrapperFailed(
      `${doing}: there is no ${program}; get NSSM 2.24 from https://nssm.cc and name it with --nssm, or ` +
        'have a definition for WinSW written with --winsw',
      cause,
    );
  }
  const output = `${plain(cause.stderr)}\n${plain(cause.stdout)}`.replaceAll(/\s+/g, ' ').trim();
  const text = output === '' ? cause.message : `NSSM says ${JSON.stringify(output.slice(0, 300))}`;
  return wrapperFailed(`${doing}: ${text}`, cause);
}

/** NSSM exits with 3 if the service manager does not know the name. */
function isNoService(error: unknown): boolean {
  return (
    error instanceof KpngError && error.cause instanceof ExecError && error.cause.exitCode === 3
  );
}
