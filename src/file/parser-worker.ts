/** The thread that parses a state file; parser-thread.ts starts it. */
import { parentPort, workerData } from 'node:worker_threads';
import type { FileLimits } from './limits.ts';
import { collectGarbage } from '../util/collect-garbage.ts';
import { StateParser } from './parse.ts';
import type { Answer } from './parser-thread.ts';

/** Characters of a part: copied in a fraction of a millisecond. */
const PART_CHARS = 65_536;
/** After so many parts, garbage is collected: V8 would keep it until the next content. */
const MANY_PARTS = 8;

const parser = new StateParser(workerData as FileLimits);

parentPort?.on('message', (bytes: Uint8Array<ArrayBuffer>) => {
  let part: string[] = [];
  let length = 0;
  let parts = 0;
  const post = (answer: Answer): void => parentPort?.postMessage(answer, []);
  const flush = (): void => {
    if (part.length > 0) post(part);
    parts += 1;
    part = [];
    length = 0;
  };
  const result = parser.parse(bytes, (item) => {
    part.push(item);
    length += item.length;
    if (length >= PART_CHARS) flush();
  });
  flush();
  post(result);
  if (parts > MANY_PARTS) void collectGarbage();
});
