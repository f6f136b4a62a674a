/**
 * Programs of the bench run as processes of their own, so that each has a core's worth of CPU to
 * itself and its use can be read. They take their settings as JSON in the first argument and answer
 * with one line of JSON on standard output.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';

/** A program that stays until it is stopped. */
export interface Running<Answer> {
  readonly pid: number;
  /** What it said when it was ready. */
  readonly answer: Answer;
  /** Ends it at once, as a crash would, and resolves when it is gone. Idempotent. */
  kill(): Promise<void>;
}

function launch(script: string, settings: object, inside: readonly string[] = []): ChildProcess {
  const [file, ...args] = [...inside, process.execPath, script, JSON.stringify(settings)] as const;
  return spawn(file, args, {
    stdio: ['pipe', 'pipe', 'inherit'],
    // Linux shares its cores out by session. Every server has one of its own, as the proxy has, so
    // that none of them is at an advantage; INT from the terminal comes to this process only.
    detached: process.platform !== 'win32',
  });
}

async function firstLine(child: ChildProcess, script: string): Promise<unknown> {
  if (child.stdout === null) throw new Error(`${script} has no standard output`);
  for await (const line of createInterface({ input: child.stdout })) return JSON.parse(line);
  throw new Error(`${script} ended without an answer`);
}

/**
 * Starts a program that stays, and resolves when it has answered. `inside`: what runs it, such as
 * `ip netns exec name`.
 */
export async function start<Answer>(
  script: string,
  settings: object,
  inside: readonly string[] = [],
): Promise<Running<Answer>> {
  const child = launch(script, settings, inside);
  const gone = once(child, 'exit');
  const answer = (await firstLine(child, script)) as Answer;
  return {
    pid: child.pid ?? 0,
    answer,
    async kill() {
      child.kill('SIGKILL');
      await gone;
    },
  };
}

/** Runs a program to its end and resolves with its answer. */
export async function run<Answer>(script: string, settings: object): Promise<Answer> {
  const child = launch(script, settings);
  const gone = once(child, 'exit');
  const answer = (await firstLine(child, script)) as Answer;
  await gone;
  return answer;
}

/** For the program itself: its settings. */
export function settings(): unknown {
  return JSON.parse(process.argv[2] ?? '{}');
}

/** For the program itself: its answer. */
export function answer(value: object): void {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}

/** For a program that stays: ends it when the process that started it has gone. */
export function endWithParent(): void {
  process.stdin.on('end', () => process.exit(0)).resume();
}
