import { KpngError } from '../errors.ts';
import { ExecError, type Exec } from '../portal/exec.ts';
import type { Clock } from '../util/clock.ts';
import { installCommands } from './nssm-commands.ts';
import type { ServiceSpec, ServiceState } from './spec.ts';

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
export class Nssm {
  readonly #program: string;
  readonly #exec: Exec;
  readonly #clock: Clock;

  constructor({ program, exec, clock }: NssmOptions) {
    this.#program = program;
    this.#exec = exec;
    this.#clock = clock;
  }

  async status(name: string): Promise<ServiceState> {
    try {
      const { stdout } = await this.#run(['status', name], `asking for the service ${name}`);
      const state = STATES[stdout.trim()];
      if (state !== undefined) return state;
      throw new KpngError(
        'KPNG_WRAPPER_FAILED',
        `asking for the service ${name}: NSSM says ${JSON.stringify(stdout.slice(0, 200))}`,
      );
    } catch (error) {
      if (isNoService(error)) return 'absent';
      throw error;
    }
  }

  /** Creates or changes the service. Resolves with whether it existed. */
  async install(spec: ServiceSpec): Promise<boolean> {
    const isThere = (await this.status(spec.name)) !== 'absent';
    for (const args of installCommands(spec, isThere)) {
      await this.#run(args, `installing the service ${spec.name}`);
    }
    return isThere;
  }

  /** Stops the service and removes it. Resolves with whether there was one. */
  async uninstall(name: string): Promise<boolean> {
    if ((await this.stop(name, true)) === 'absent') return false;
    await this.#run(['remove', name, 'confirm'], `removing the service ${name}`);
    return true;
  }

  /** Resolves when it runs. */
  async start(name: string): Promise<void> {
    const state = await this.#known(name);
    if (state === 'running') return;
    const failure = await this.#try(['start', name], `starting the service ${name}`);
    await this.#until(name, 'running', TIMEOUT_MS, failure);
  }

  /**
   * Resolves with the previous state when the service has stopped; waits as long as NSSM lets it drain. A service
   * that is `absent` is an error unless `mayBeAbsent`.
   */
  async stop(name: string, mayBeAbsent = false): Promise<ServiceState> {
    const state = mayBeAbsent ? await this.status(name) : await this.#known(name);
    if (state === 'absent' || state === 'stopped') return state;
    const drain = Number(await this.#setting(name, 'AppStopMethodConsole'));
    const failure = await this.#try(['stop', name], `stopping the service ${name}`);
    await this.#until(name, 'stopped', (drain || TIMEOUT_MS) + KILL_MS, failure);
    return state;
  }

  async #known(name: string): Promise<ServiceState> {
    const state = await this.status(name);
    if (state !== 'absent') return state;
    throw new KpngError('KPNG_WRAPPER_FAILED', `there is no service ${name}`);
  }

  async #setting(name: string, setting: string): Promise<string> {
    const { stdout } = await this.#run(['get', name, setting], `reading the service ${name}`);
    return stdout.trim();
  }

  async #until(
    name: string,
    wanted: 'running' | 'stopped',
    timeoutMs: number,
    failure: KpngError | undefined,
  ): Promise<void> {
    const end = this.#clock.now() + timeoutMs;
    for (;;) {
      const state = await this.status(name);
      if (state === wanted) return;
      const over = wanted === 'running' && (state === 'stopped' || state === 'pausing');
      if (over || this.#clock.now() >= end) throw notThere(name, wanted, state, failure);
      await new Promise<void>((resolve) => this.#clock.setTimer(POLL_MS, resolve));
    }
  }

  /** As `#run`, but returns the failure: the service's state decides. */
  async #try(args: readonly string[], doing: string): Promise<KpngError | undefined> {
    try {
      await this.#run(args, doing);
      return undefined;
    } catch (error) {
      if (error instanceof KpngError) return error;
      throw error;
    }
  }

  async #run(args: readonly string[], doing: string): Promise<{ stdout: string }> {
    try {
      const { stdout } = await this.#exec({ file: this.#program, args, timeoutMs: 120_000 });
      return { stdout: plain(stdout) };
    } catch (error) {
      if (!(error instanceof ExecError)) throw error;
      throw failed(error, doing, this.#program);
    }
  }
}

/** NSSM prints UTF-16 unless it prints to a console. */
function plain(text: string): string {
  return text.replaceAll('\0', '');
}

function failed(cause: ExecError, doing: string, program: string): KpngError {
  if (cause.failure === 'missing') {
    return new KpngError(
      'KPNG_WRAPPER_FAILED',
      `${doing}: there is no ${program}; get NSSM 2.24 from https://nssm.cc and name it with --nssm, or ` +
        'have a definition for WinSW written with --winsw',
      { cause },
    );
  }
  const output = `${plain(cause.stderr)}\n${plain(cause.stdout)}`.replaceAll(/\s+/g, ' ').trim();
  const text = output === '' ? cause.message : `NSSM says ${JSON.stringify(output.slice(0, 300))}`;
  return new KpngError('KPNG_WRAPPER_FAILED', `${doing}: ${text}`, { cause });
}

/** NSSM exits with 3 if the service manager does not know the name. */
function isNoService(error: unknown): boolean {
  return (
    error instanceof KpngError && error.cause instanceof ExecError && error.cause.exitCode === 3
  );
}

/** `failure`: NSSM's message, if any. */
function notThere(
  name: string,
  wanted: 'running' | 'stopped',
  state: ServiceState,
  failure: KpngError | undefined,
): KpngError {
  const what = wanted === 'running' ? 'does not run' : 'has not stopped';
  const hint = wanted === 'running' ? '; see its log file' : '';
  const message = `the service ${name} ${what}, it is ${state}${hint}`;
  if (failure === undefined) return new KpngError('KPNG_WRAPPER_FAILED', message);
  const cause = failure;
  return new KpngError('KPNG_WRAPPER_FAILED', `${failure.message}; ${message}`, { cause });
}
