/** The thread that parses a state file: see parser-thread.ts, which starts it. */
import { parentPort, workerData } from 'node:worker_threads';
import { loadHasher } from '../api/hash.ts';
import { ClusterHandover, NodeHandover } from './handover.ts';
import type { Answer, Request, ThreadOptions } from './parser-thread.ts';
import { Parser } from './parser.ts';

const { limits, nodeName } = workerData as ThreadOptions;
const parser =
  nodeName === undefined
    ? new Parser(limits, new ClusterHandover())
    : new Parser(limits, new NodeHandover(nodeName, await loadHasher()));

parentPort?.on('message', (request: Request) => {
  const answer: Answer<unknown> =
    request.kind === 'parse'
      ? { kind: 'verdict', verdict: parser.parse(request.bytes) }
      : { kind: 'part', steps: parser.nextPart() };
  parentPort?.postMessage(answer, []);
});
