import { KpngError, messageOf } from '../errors.ts';
import { escapeLines } from '../util/terminal-text.ts';
import { exitCodeOf, PROGRAM, type BoundCommand, type Streams } from './command.ts';
import { answerQuery, helpText } from './help.ts';
import { configPathOf, configurableFlags, helpWords, parse, parseRun } from './parse.ts';
import type { RunOptions } from './lifecycle.ts';
import { setImmediate } from 'node:timers/promises';

/**
 * Parses and runs a command line, without the program's name, and returns the exit code. Sources and sinks run on
 * the streams of the process, not on those of `host`.
 */
export async function main(
  argv: readonly string[],
  host: Streams & { readonly env: NodeJS.ProcessEnv } = process,
): Promise<number> {
  await closeDebugger();
  const { env, stdout, stderr } = host;
  try {
    if (argv[0] === 'completion' && argv[1] === 'query') {
      stdout.write(answerQuery(argv.slice(2)));
      return 0;
    }
    const path = configPathOf(argv, env);
    // Loaded only if there is a file.
    const files = path === '' ? undefined : await import('../config/file.ts');
    const resolve = (text: string) => files?.parseConfig(path, text, configurableFlags());
    const config = files && resolve(await files.readConfigText(path));
    const invocation = parse(argv, env, config);
    if (invocation.kind === 'other') return await invocation.action(host);
    if (invocation.kind === 'help') {
      stdout.write(helpText(invocation.topic));
      return 0;
    }
    const read = (bytes: Uint8Array): BoundCommand => {
      const changed = files && resolve(files.configText(path, bytes));
      try {
        return parseRun(argv, env, changed);
      } catch (cause) {
        throw new KpngError('KPNG_CONFIG_INVALID', `${path}: ${messageOf(cause)}`, { cause });
      }
    };
    return await start(invocation, config && { path, read });
  } catch (error) {
    if (!(error instanceof KpngError)) throw error;
    const isUsage = error.code === 'KPNG_USAGE';
    if (isUsage && argv.length === 0) stderr.write(`${helpText({})}\n`);
    stderr.write(`${PROGRAM}: ${escapeLines(error.message)} (${error.code})\n`);
    if (isUsage && argv.length > 0) {
      stderr.write(`To learn more: ${[PROGRAM, 'help', ...helpWords(argv)].join(' ')}\n`);
    }
    return exitCodeOf(error);
  }
}

async function start(command: BoundCommand, config?: RunOptions['config']): Promise<number> {
  const { createLog } = await import('../observe/log.ts');
  const { run } = await import('./run.ts');
  const { meaningOfHangUp } = await import('./lifecycle.ts');
  const { globals, warnings, misspelt, ignored } = command;
  const log = await createLog({
    format: globals.loggingFormat ?? (process.stderr.isTTY ? 'text' : 'json'),
    verbosity: globals.v,
    colour: process.stderr.isTTY && !process.env['NO_COLOR'],
  });
  for (const { line, field, message } of warnings) {
    const keys = { path: config?.path, line, field, err: message };
    log.warn('A part of the configuration has no effect', keys);
  }
  for (const { variable, meant } of misspelt) {
    log.warn('Unknown environment variable has no effect', { variable, meant });
  }
  for (const { flags, why } of ignored) {
    log.warn('Flags of kube-proxy or klog have no effect', { flags: flags.join(' '), reason: why });
  }
  const hangUp = meaningOfHangUp(process.platform, process.stdin.isTTY || process.stderr.isTTY);
  return run({ ...command, log, process, stdout: process.stdout, hangUp, config });
}

/** Node options that enable the debugger; `--inspect-port` alone does not. */
const ASKED = /(?:^|[ "])--inspect(?:-brk|-wait)?(?:[= "]|$)/;

/**
 * Closes the debugger that an early USR1 opened to every local user, before the program handled that signal. A
 * debugger requested by an option stays.
 */
async function closeDebugger(): Promise<void> {
  const options = [process.env['NODE_OPTIONS'] ?? '', ...process.execArgv].join(' ');
  if (ASKED.test(options) || !process.features.inspector) return;
  // Node opens it in the event loop; by the next turn that is done.
  await setImmediate();
  process.getBuiltinModule('node:inspector').close();
}
