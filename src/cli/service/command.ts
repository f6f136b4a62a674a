import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Writable } from 'node:stream';
import { KpngError } from '../../errors.ts';
import { systemExec, type Exec } from '../../portal/exec.ts';
import { Nssm } from '../../service/nssm.ts';
import type { ServiceSpec } from '../../service/spec.ts';
import { winswDefinition } from '../../service/winsw.ts';
import { MAX_TIMER_MS, systemClock, type Clock } from '../../util/clock.ts';
import { splitArgv } from '../argv.ts';
import { readFlags, type Environment } from '../flags/read.ts';
import { pickValues } from '../flags/table.ts';
import { usage } from '../grammar.ts';
import { PROGRAM } from '../help.ts';
import { parse } from '../parse.ts';
import { SERVICE_FLAGS, type ServiceValues } from './flags.ts';
import { serviceHelp } from './help.ts';
import { findNssm, ownProgram, type OwnProgram } from './program.ts';

/** What the command works on; tests put something else in its place. */
export interface ServiceHost {
  readonly stdout: Writable;
  readonly stderr: Writable;
  readonly env: Environment;
  readonly platform: NodeJS.Platform;
  readonly exec?: Exec;
  readonly clock?: Clock;
  readonly own?: OwnProgram;
}

const VERBS = ['install', 'uninstall', 'start', 'stop', 'status'] as const;
type Verb = (typeof VERBS)[number];

interface Request {
  readonly verb: Verb;
  readonly values: ServiceValues;
  /** What the service is to do. */
  readonly line: readonly string[];
}

/** Carries out `service …`, whose words and flags are `argv`, and returns the exit code: 0, 1 or 2. */
export async function runService(argv: readonly string[], host: ServiceHost): Promise<number> {
  const { stdout, stderr } = host;
  // Timers of the clock let the process end.
  const alive = setInterval(() => {}, MAX_TIMER_MS);
  try {
    const request = readRequest(argv);
    if (request === 'help') {
      stdout.write(serviceHelp());
      return 0;
    }
    return await carryOut(request, host);
  } catch (error) {
    if (!(error instanceof KpngError)) throw error;
    stderr.write(`${PROGRAM}: ${error.message} (${error.code})\n`);
    if (error.code !== 'KPNG_USAGE') return 1;
    stderr.write(`To learn more: ${PROGRAM} service --help\n`);
    return 2;
  } finally {
    clearInterval(alive);
  }
}

function readRequest(argv: readonly string[]): Request | 'help' {
  const at = argv.indexOf('--');
  const line = at === -1 ? [] : argv.slice(at + 1);
  const { words, flags, help } = splitArgv(at === -1 ? argv : argv.slice(0, at), SERVICE_FLAGS);
  if (help) return 'help';
  const values = pickValues(SERVICE_FLAGS, readFlags(flags, SERVICE_FLAGS));
  const [word, ...extra] = words;
  const verb = VERBS.find((each) => each === word);
  if (verb === undefined) throw usage(`service: expected one of ${VERBS.join(', ')}`);
  if (extra.length > 0) {
    throw usage(
      `service ${verb}: write "--" before the command line of the service: ${extra.join(' ')}`,
    );
  }
  if (verb === 'install') checkLine(line);
  else if (line.length > 0) throw usage(`service ${verb} takes no command line`);
  return { verb, values, line };
}

/** What cannot run here cannot run as a service either, where nobody would see why. */
function checkLine(line: readonly string[]): void {
  if (line.length === 0)
    throw usage('service install: nothing follows "--" that the service could do');
  const invocation = parse(line);
  if (invocation.kind === 'usage-error') {
    throw usage(`the command line of the service: ${invocation.error.message}`);
  }
  if (invocation.kind !== 'run')
    throw usage(`${line.join(' ')} is nothing that a service could do`);
}

async function carryOut({ verb, values, line }: Request, host: ServiceHost): Promise<0 | 1> {
  const { platform, stdout, exec = systemExec, clock = systemClock } = host;
  const own = host.own ?? ownProgram();
  const { name } = values;
  if (values.winsw !== '') {
    if (verb !== 'install') throw usage('--winsw is for service install; then WinSW does the rest');
    await writeDefinition(specOf(values, line, own, host.env), values.winsw, stdout);
    return 0;
  }
  if (platform !== 'win32') {
    throw usage('service works on Windows only; deploy/ has what other systems need');
  }
  const program = values.nssm === '' ? findNssm(own.directory) : values.nssm;
  const nssm = new Nssm({ program, exec, clock });
  switch (verb) {
    case 'install': {
      const spec = specOf(values, line, own, host.env);
      await makeFolder(spec.logDirectory);
      const wasThere = await nssm.install(spec);
      const state = await nssm.status(name);
      const hint =
        wasThere && state === 'running' ? '; what has changed counts from its next start' : '';
      stdout.write(
        `The service ${name} is ${wasThere ? 'changed' : 'installed'} and ${state}${hint}.\n`,
      );
      return 0;
    }
    case 'uninstall':
      stdout.write(
        (await nssm.uninstall(name))
          ? `The service ${name} is removed.\n`
          : `There is no service ${name}.\n`,
      );
      return 0;
    case 'start':
      await nssm.start(name);
      stdout.write(`The service ${name} runs.\n`);
      return 0;
    case 'stop':
      await nssm.stop(name);
      stdout.write(`The service ${name} has stopped.\n`);
      return 0;
    case 'status': {
      const state = await nssm.status(name);
      stdout.write(`${state}\n`);
      return state === 'running' ? 0 : 1;
    }
    default:
      return verb satisfies never;
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
    displayName: values['display-name'] || name,
    description: `Userspace proxy for Kubernetes Services: ${line.join(' ')}`,
    program: own.program,
    args: [...own.args, ...line],
    directory: own.directory,
    logDirectory: values['log-dir'] || join(data, 'kpng-userspace', 'logs'),
    logBytes: values['log-size'],
    environment: values.env,
    start: values.start,
    dependsOn: values['depends-on'],
    restartDelayMs: values['restart-delay'],
    stopTimeoutMs: values['stop-timeout'],
  };
}

async function makeFolder(path: string): Promise<void> {
  try {
    await mkdir(path, { recursive: true });
  } catch (cause) {
    const { message } = cause as Error;
    throw new KpngError('KPNG_WRAPPER_FAILED', `making the folder ${path}: ${message}`, { cause });
  }
}

async function writeDefinition(spec: ServiceSpec, folder: string, stdout: Writable): Promise<void> {
  await makeFolder(folder);
  const path = join(folder, `${spec.name}.xml`);
  try {
    await writeFile(path, winswDefinition(spec));
  } catch (cause) {
    const { message } = cause as Error;
    throw new KpngError('KPNG_WRAPPER_FAILED', `writing ${path}: ${message}`, { cause });
  }
  const program = join(folder, `${spec.name}.exe`);
  stdout.write(`Wrote ${path}. Copy WinSW to ${program}, and run: ${program} install\n`);
}
