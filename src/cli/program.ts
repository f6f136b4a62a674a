import { helpText, PROGRAM } from './help.ts';
import { parse, type Invocation } from './parse.ts';
import { REGISTRY } from './registry.ts';
import { versionText } from './version.ts';

/** Understands a command line, without the program's name, carries it out, and returns the exit code. */
export async function main(argv: readonly string[]): Promise<number> {
  const invocation = parse(argv, process.env);
  if (invocation.kind === 'run') return start(invocation);
  if (invocation.kind === 'usage-error') {
    process.stderr.write(usageError(invocation));
    return 2;
  }
  process.stdout.write(
    invocation.kind === 'version' ? versionText() : helpText(invocation.topic, REGISTRY),
  );
  return 0;
}

async function start(invocation: Invocation & { kind: 'run' }): Promise<number> {
  const [{ createLog }, { run }] = await Promise.all([
    import('../observe/log.ts'),
    import('./run.ts'),
  ]);
  const { globals } = invocation;
  const log = await createLog({
    format: globals['logging-format'] ?? (process.stderr.isTTY ? 'text' : 'json'),
    verbosity: globals.v,
    colour: process.stderr.isTTY && !process.env['NO_COLOR'],
  });
  const terminal = process.stdin.isTTY || process.stderr.isTTY;
  return run({ ...invocation, log, process, stdout: process.stdout, terminal });
}

function usageError({ error, topic }: Invocation & { kind: 'usage-error' }): string {
  const words =
    topic.kind === 'source'
      ? ` ${topic.source.word}`
      : topic.kind === 'command'
        ? ` ${topic.source.word} ${topic.sink.word}`
        : '';
  return `${PROGRAM}: ${error.message} (${error.code})\nTo learn more: ${PROGRAM} help${words}\n`;
}
