import { existsSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { join, dirname, win32 } from 'node:path';
import { isSea } from 'node:sea';
import type { Writable } from 'node:stream';
import { KpngError, messageOf } from '../../errors.ts';
import { ExecError, systemExec, type Exec } from '../../portal/exec.ts';
import { MAX_TIMER_MS, systemClock, type Clock } from '../../util/clock.ts';
import { usage } from '../flags/table.ts';
import type { ServiceValues, Verb } from './spec.ts';

/** A Windows service, in its desired state: no value is left to a default. */
interface ServiceSpec extends ServiceValues {
  readonly description: string;
  readonly program: string;
  /** Its arguments, unquoted. */
  readonly args: readonly string[];
  readonly directory: string;
}

export interface ServiceHost {
  readonly stdout: Writable;
  readonly env?: NodeJS.ProcessEnv;
  readonly platform?: NodeJS.Platform;
  readonly exec?: Exec;
  readonly clock?: Clock;
  readonly own?: ReturnType<typeof ownProgram>;
}

/** Runs `service …` and returns the exit code: 0 or 1. Rejects with a KpngError. */
export async function runService(
  verb: Verb,
  values: ServiceValues,
  line: readonly string[],
  { stdout, env = process.env, platform = process.platform, ...host }: ServiceHost,
): Promise<0 | 1> {
  const { exec = systemExec, clock = systemClock, own = ownProgram() } = host;
  const data = env['ProgramData'] ?? env['PROGRAMDATA'] ?? String.raw`C:\ProgramData`;
  const spec: ServiceSpec = {
    ...values,
    ...own,
    args: [...own.args, ...line],
    displayName: values.displayName || values.name,
    description: `Userspace proxy for Kubernetes Services: ${line.join(' ')}`,
    logDir: values.logDir || join(data, 'kpng-userspace', 'logs'),
  };
  if (values.winsw !== '') {
    const path = join(values.winsw, `${values.name}.xml`);
    const definition = winswDefinition(spec);
    await makeFolder(values.winsw, () => writeFile(path, definition));
    const program = join(values.winsw, `${values.name}.exe`);
    stdout.write(`Wrote ${path}. Copy WinSW to ${program}, and run: ${program} install\n`);
    return 0;
  }
  if (platform !== 'win32') {
    throw usage('service is for Windows; deploy/ has units and manifests for other systems');
  }
  const program = values.nssm === '' ? findNssm(own.directory) : values.nssm;
  // Clock timers do not keep the process alive.
  const alive = setInterval(() => {}, MAX_TIMER_MS);
  try {
    const outcome = await nssm(program, spec, exec, clock)[verb]();
    stdout.write(`${outcome}\n`);
    return verb === 'status' && outcome !== 'running' ? 1 : 0;
  } finally {
    clearInterval(alive);
  }
}

/** Creates a folder if it is missing, and what is to be in it. */
async function makeFolder(path: string, fill?: () => Promise<void>): Promise<void> {
  try {
    await mkdir(path, { recursive: true });
    await fill?.();
  } catch (cause) {
    throw wrapperFailed(`creating the folder ${path}: ${messageOf(cause)}`, cause);
  }
}

/**
 * An executable starts itself; from source or dist/ it is Node with the script that was started. `args` come before all
 * others.
 */
export function ownProgram(program = process.execPath, script = process.argv[1], alone = isSea()) {
  const args: string[] = alone || script === undefined ? [] : ['--disable-sigusr1', script];
  return { program, args, directory: dirname(program) };
}

/** NSSM beside the program, else its name only, to be found on the PATH. */
export function findNssm(directory: string): string {
  const beside = join(directory, 'nssm.exe');
  return existsSync(beside) ? beside : 'nssm';
}

/**
 * What NSSM calls the states of a service: others are PENDING, which is `changing`. `pausing`: the program ended too often,
 * and the wrapper delays its restart. SERVICE_ABSENT is ours.
 */
const STATES: ReadonlyMap<string, string> = new Map([
  ['SERVICE_ABSENT', 'absent'],
  ['SERVICE_STOPPED', 'stopped'],
  ['SERVICE_RUNNING', 'running'],
  ['SERVICE_PAUSED', 'pausing'],
]);

/** Interval and limit of the waits for a state. Milliseconds. */
const POLL_MS = 250;
const TIMEOUT_MS = 30_000;
/** A service killed after its time limit needs a moment to end. Milliseconds. */
const KILL_MS = 15_000;

/**
 * A Windows service through NSSM, 2.24 or later. Everything is idempotent. The results of starting and stopping are
 * read from the service's state, since NSSM stops waiting after a while.
 *
 * `program`: the name or path of NSSM. Each method resolves with a line for the user, or rejects with KPNG_WRAPPER_FAILED.
 */
function nssm(program: string, spec: ServiceSpec, exec: Exec, clock: Clock) {
  const { name } = spec;
  const run = async (doing: string, ...args: readonly string[]): Promise<string> => {
    try {
      const { stdout } = await exec({ file: program, args, timeoutMs: 120_000 });
      // NSSM prints UTF-16 unless it prints to a console.
      return stdout.replaceAll('\0', '').trim();
    } catch (error) {
      throw failed(error as ExecError, doing, program);
    }
  };

  const status = async (): Promise<string> => {
    const doing = `asking for the service ${name}`;
    const found = await run(doing, 'status', name).catch((error: KpngError) => {
      // NSSM exits with 3 if the service manager does not know the name.
      if (error.cause instanceof ExecError && error.cause.exitCode === 3) return 'SERVICE_ABSENT';
      throw error;
    });
    if (/^SERVICE_\w+_PENDING$/.test(found)) return 'changing';
    const state = STATES.get(found);
    if (state !== undefined) return state;
    throw wrapperFailed(`${doing}: NSSM says ${JSON.stringify(found.slice(0, 200))}`);
  };

  /** Runs a command and waits for the state, which decides; NSSM's failure only explains. */
  const bring = async (verb: 'start' | 'stop'): Promise<string> => {
    const isStart = verb === 'start';
    const wanted = isStart ? 'running' : 'stopped';
    const done = `The service ${name} ${isStart ? 'is running' : 'has stopped'}.`;
    let state = await status();
    if (state === 'absent') throw wrapperFailed(`there is no service ${name}`);
    if (state === wanted) return done;
    let timeoutMs = TIMEOUT_MS;
    if (!isStart) {
      // As long as NSSM lets the service drain.
      const limit = await run(`reading the service ${name}`, 'get', name, 'AppStopMethodConsole');
      timeoutMs = (Number(limit) || TIMEOUT_MS) + KILL_MS;
    }
    const doing = `${isStart ? 'starting' : 'stopping'} the service ${name}`;
    const failure = await run(doing, verb, name).then(
      () => undefined,
      (error: KpngError) => error,
    );
    for (const end = clock.now() + timeoutMs; ;) {
      state = await status();
      if (state === wanted) return done;
      const isOver = isStart && (state === 'stopped' || state === 'pausing');
      if (isOver || clock.now() >= end) {
        const before = failure === undefined ? '' : `${failure.message}; `;
        const problem = isStart ? 'does not run' : 'has not stopped';
        const hint = isStart ? '; see its log file' : '';
        const message = `${before}the service ${name} ${problem}, it is ${state}${hint}`;
        throw wrapperFailed(message, failure);
      }
      await new Promise<void>((resolve) => clock.setTimer(POLL_MS, resolve));
    }
  };

  return {
    status,

    async install() {
      await makeFolder(spec.logDir);
      const existed = (await status()) !== 'absent';
      const created = existed ? ['set', name, 'Application'] : ['install', name];
      const commands = settings(spec).map(([setting = '', ...values]) =>
        values.length === 0 ? ['reset', name, setting] : ['set', name, setting].concat(values),
      );
      for (const args of [[...created, spec.program], ...commands]) {
        await run(`installing the service ${name}`, ...args);
      }
      const state = await status();
      const hint = existed && state === 'running' ? '; changes take effect at its next start' : '';
      return `The service ${name} is ${existed ? 'changed' : 'installed'} and ${state}${hint}.`;
    },

    async uninstall() {
      if ((await status()) === 'absent') return `There is no service ${name}.`;
      await bring('stop');
      await run(`removing the service ${name}`, 'remove', name, 'confirm');
      return `The service ${name} is removed.`;
    },

    start: () => bring('start'),
    stop: () => bring('stop'),
  };
}

/** The settings of NSSM and their values; none: the default. */
function settings(spec: ServiceSpec): string[][] {
  const log = win32.join(spec.logDir, `${spec.name}.log`);
  return [
    // NSSM passes this text on unchanged, so it has to contain the quotes. `install` would lose them.
    ['AppParameters', commandLine(spec.args)],
    ['AppDirectory', spec.directory],
    ['DisplayName', spec.displayName],
    ['Description', spec.description],
    ['Start', `SERVICE_${spec.start.replace('-', '_').toUpperCase()}_START`],
    ['AppStdout', log],
    ['AppStderr', log],
    ['AppRotateFiles', '1'],
    ['AppRotateOnline', '1'],
    ['AppRotateBytes', String(spec.logSize)],
    ['AppEnvironmentExtra', ...spec.env],
    ['DependOnService', ...spec.dependsOn],
    // Skips WM_CLOSE and WM_QUIT, which are for windows: NSSM sends only Ctrl-C, and kills what does not stop in time.
    ['AppStopMethodSkip', '6'],
    ['AppStopMethodConsole', String(spec.stopTimeout)],
    ['AppRestartDelay', String(spec.restartDelay)],
    ['AppExit', 'Default', 'Restart'],
    // A normal end, by `stop` over the admin pipe.
    ['AppExit', '0', 'Exit'],
    // A restart does not fix a wrong command line or configuration.
    ['AppExit', '2', 'Exit'],
  ];
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
  const printed = `${cause.stderr}\n${cause.stdout}`.replaceAll('\0', '');
  const output = printed.replaceAll(/\s+/g, ' ').trim();
  const text = output === '' ? cause.message : `NSSM says ${JSON.stringify(output.slice(0, 300))}`;
  return wrapperFailed(`${doing}: ${text}`, cause);
}

/**
 * Joins arguments into one text in the way that Windows programs split it: in quotes if there is a blank, with a backslash
 * before each quote, and backslashes before a quote doubled.
 */
function commandLine(args: readonly string[]): string {
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
function winswDefinition(spec: ServiceSpec): string {
  const logKilobytes = Math.min(MAX_LOG_KB, Math.round(spec.logSize / 1024));
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
