import { existsSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { join, dirname } from 'node:path';
import { isSea } from 'node:sea';
import type { Writable } from 'node:stream';
import { KpngError, messageOf } from '../../errors.ts';
import { systemExec, type Exec } from '../../portal/exec.ts';
import { createNssm } from '../../service/nssm.ts';
import type { ServiceSpec } from '../../service/spec.ts';
import { winswDefinition } from '../../service/winsw.ts';
import { MAX_TIMER_MS, systemClock, type Clock } from '../../util/clock.ts';
import { usage, type Environment } from '../flags/read.ts';
import type { ServiceValues, Verb } from './flags.ts';

export interface ServiceHost {
  readonly stdout: Writable;
  readonly env: Environment;
  readonly platform: NodeJS.Platform;
  readonly exec?: Exec;
  readonly clock?: Clock;
  readonly own?: OwnProgram;
}

/** Runs `service …` and returns the exit code: 0 or 1. Rejects with a KpngError. */
export async function runService(
  verb: Verb,
  values: ServiceValues,
  line: readonly string[],
  host: ServiceHost,
): Promise<0 | 1> {
  const { platform, stdout, exec = systemExec, clock = systemClock, own = ownProgram() } = host;
  const { name } = values;
  const print = (text: string): void => void stdout.write(`${text}\n`);
  if (values.winsw !== '') {
    print(await writeDefinition(specOf(values, line, own, host.env), values.winsw));
    return 0;
  }
  if (platform !== 'win32') {
    throw usage('service is for Windows; deploy/ has units and manifests for other systems');
  }
  const program = values.nssm === '' ? findNssm(own.directory) : values.nssm;
  const nssm = createNssm({ program, exec, clock });
  // Clock timers do not keep the process alive.
  const alive = setInterval(() => {}, MAX_TIMER_MS);
  try {
    switch (verb) {
      case 'install': {
        const spec = specOf(values, line, own, host.env);
        await makeFolder(spec.logDirectory);
        const existed = await nssm.install(spec);
        const state = await nssm.status(name);
        const hint =
          existed && state === 'running' ? '; changes take effect at its next start' : '';
        print(`The service ${name} is ${existed ? 'changed' : 'installed'} and ${state}${hint}.`);
        return 0;
      }
      case 'uninstall': {
        const existed = await nssm.uninstall(name);
        print(existed ? `The service ${name} is removed.` : `There is no service ${name}.`);
        return 0;
      }
      case 'start':
        await nssm.start(name);
        print(`The service ${name} is running.`);
        return 0;
      case 'stop':
        await nssm.stop(name);
        print(`The service ${name} has stopped.`);
        return 0;
      case 'status': {
        const state = await nssm.status(name);
        print(state);
        return state === 'running' ? 0 : 1;
      }
      default:
        return verb satisfies never;
    }
  } finally {
    clearInterval(alive);
  }
}

function specOf(
  values: ServiceValues,
  line: readonly string[],
  own: OwnProgram,
  env: Environment,
): ServiceSpec {
  const { name } = values;
  const data = env['ProgramData'] ?? env['PROGRAMDATA'] ?? String.raw`C:\ProgramData`;
  return {
    name,
    displayName: values.displayName || name,
    description: `Userspace proxy for Kubernetes Services: ${line.join(' ')}`,
    program: own.program,
    args: [...own.args, ...line],
    directory: own.directory,
    logDirectory: values.logDir || join(data, 'kpng-userspace', 'logs'),
    logBytes: values.logSize,
    environment: values.env,
    start: values.start,
    dependsOn: values.dependsOn,
    restartDelayMs: values.restartDelay,
    stopTimeoutMs: values.stopTimeout,
  };
}

async function makeFolder(path: string): Promise<void> {
  await attempt(`creating the folder ${path}`, mkdir(path, { recursive: true }));
}

/** Resolves with the next step for the user. */
async function writeDefinition(spec: ServiceSpec, folder: string): Promise<string> {
  await makeFolder(folder);
  const path = join(folder, `${spec.name}.xml`);
  await attempt(`writing ${path}`, writeFile(path, winswDefinition(spec)));
  const program = join(folder, `${spec.name}.exe`);
  return `Wrote ${path}. Copy WinSW to ${program}, and run: ${program} install`;
}

async function attempt(what: string, work: Promise<unknown>): Promise<void> {
  try {
    await work;
  } catch (cause) {
    throw new KpngError('KPNG_WRAPPER_FAILED', `${what}: ${messageOf(cause)}`, { cause });
  }
}

export interface OwnProgram {
  readonly program: string;
  /** Arguments that come before all others. */
  readonly args: readonly string[];
  readonly directory: string;
}

/** An executable starts itself; from source or dist/ it is Node with the script that was started. */
export function ownProgram(
  execPath: string = process.execPath,
  script: string | undefined = process.argv[1],
  alone: boolean = isSea(),
): OwnProgram {
  const directory = dirname(execPath);
  return {
    program: execPath,
    args: alone || script === undefined ? [] : ['--disable-sigusr1', script],
    directory,
  };
}

/** NSSM beside the program, else its name only, to be found on the PATH. */
export function findNssm(
  directory: string,
  exists: (path: string) => boolean = existsSync,
): string {
  const beside = join(directory, 'nssm.exe');
  return exists(beside) ? beside : 'nssm';
}
