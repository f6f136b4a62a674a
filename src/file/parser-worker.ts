/** The thread that parses a state file: see parser-thread.ts, which starts it. */
import { parentPort, workerData } from 'node:worker_threads';
import type { FileLimits } from './limits.ts';
import type { Answer, Request } from './parser-thread.ts';
import { Parser } from './parser.ts';

const parser = new Parser(workerData as FileLimits);

parentPort?.on('message', (request: Request) => {
  const answer: Answer =
    request.kind === 'parse'
      ? { kind: 'verdict', verdict: parser.parse(request.bytes) }
      : { kind: 'part', changes: parser.nextPart() };
  parentPort?.postMessage(answer, []);
});
