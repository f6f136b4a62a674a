import type { ConfigFile } from '../config/config-file.ts';
import { KpngError } from '../errors.ts';
import { commandWords, type Words } from './grammar.ts';
import { helpText, PROGRAM } from './help.ts';
import { configPathOf, parse, type Invocation } from './parse.ts';
import { REGISTRY } from './registry.ts';
import type { RunOptions } from './run.ts';
import { versionText } from './version.ts';

type Argv = readonly string[];

/** Understands a command line, without the program's name, carries it out, and returns the exit code. */
export async function main(argv: Argv): Promise<number> {
  if (argv[0] === 'service' || (argv[0] === 'help' && argv[1] === 'service')) {
    const { runService } = await import('./service/command.ts');
    return runService(argv[0] === 'help' ? ['--help'] : argv.slice(1), process);
  }
  if (argv[0] === 'completion' || (argv[0] === 'help' && argv[1] === 'completion')) {
    const { runCompletion } = await import('./completion/command.ts');
    return runCompletion(argv[0] === 'help' ? ['--help'] : argv.slice(1), process);
  }
  const { env } = process;
  const path = configPathOf(argv, env);
  let config: ConfigFile | undefined;
  if (path !== '') {
    const { loadConfig } = await import('./config-file.ts');
    const loaded = await loadConfig(path);
    if (loaded instanceof KpngError) {
      process.stderr.write(`${PROGRAM}: ${loaded.message} (${loaded.code})\n`);
      return 2;
    }
    config = loaded;
  }
  const invocation = parse(argv, env, REGISTRY, config);
  if (invocation.kind === 'run') {
    const read = (next: ConfigFile): Invocation => parse(argv, env, REGISTRY, next);
    return start(invocation, path === '' ? undefined : { path, read });
  }
  if (invocation.kind === 'usage-error') {
    process.stderr.write(usageError(invocation, argv));
    return 2;
  }
  if (invocation.kind === 'cleanup') {
    const { cleanup } = await import('./cleanup.ts');
    return cleanup({ ...invocation, stdout: process.stdout, stderr: process.stderr });
  }
  if (invocation.kind === 'admin') {
    const { runAdmin } = await import('./admin/run.ts');
    try {
      return await runAdmin(invocation, process);
    } catch (error) {
      if (!(error instanceof KpngError)) throw error;
      process.stderr.write(`${PROGRAM}: ${error.message} (${error.code})\n`);
      return error.code === 'KPNG_USAGE' ? 2 : 1;
    }
  }
  if (invocation.kind === 'config-validate') {
    const { validateConfig } = await import('./config-command.ts');
    return validateConfig(invocation.file, process);
  }
  if (invocation.kind === 'config-print') {
    const { printConfig } = await import('./config-command.ts');
    return printConfig(invocation, path, process);
  }
  process.stdout.write(
    invocation.kind === 'version' ? versionText() : helpText(invocation.topic, REGISTRY),
  );
  return 0;
}

async function start(
  invocation: Invocation & { kind: 'run' },
  config: RunOptions['config'],
): Promise<number> {
  const [{ createLog }, { run }, { meaningOfHangUp }] = await Promise.all([
    import('../observe/log.ts'),
    import('./run.ts'),
    import('./lifecycle.ts'),
  ]);
  const { globals, warnings, misspelt } = invocation;
  const log = await createLog({
    format: globals['logging-format'] ?? (process.stderr.isTTY ? 'text' : 'json'),
    verbosity: globals.v,
    colour: process.stderr.isTTY && !process.env['NO_COLOR'],
  });
  for (const { line, field, message } of warnings) {
    log.warn('A part of the configuration has no effect', {
      path: config?.path,
      line,
      field,
      err: message,
    });
  }
  for (const { variable, meant } of misspelt) {
    log.warn('An environment variable that is not known has no effect', { variable, meant });
  }
  return run({
    ...invocation,
    log,
    process,
    stdout: process.stdout,
    hangUp: meaningOfHangUp(process.platform, process.stdin.isTTY || process.stderr.isTTY),
    ...(config !== undefined && { config }),
  });
}

/** What is wrong, and where to learn more; whoever names nothing at all learns it here. */
function usageError({ error, topic }: Invocation & { kind: 'usage-error' }, argv: Argv): string {
  const problem = `${PROGRAM}: ${error.message} (${error.code})\n`;
  if (argv.length === 0) return `${helpText(topic, REGISTRY)}\n${problem}`;
  const words = [PROGRAM, 'help', ...topicWords(topic)].join(' ');
  return `${problem}To learn more: ${words}\n`;
}

function topicWords(topic: Words): string[] {
  if (topic.kind === 'source') return [topic.source.word];
  if (topic.kind === 'cleanup' || topic.kind === 'config') return [topic.kind];
  if (topic.kind === 'admin') return [topic.command.word];
  return topic.kind === 'command' ? [commandWords(topic.source, topic.sink)] : [];
}
