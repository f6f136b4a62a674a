/** The thread that parses a state file; parser-thread.ts starts it. */
import { parentPort, workerData } from 'node:worker_threads';
import type { FileLimits } from './limits.ts';
import { collectGarbage } from '../util/collect-garbage.ts';
import { type ChangedItems, decodeText, StateParser } from './parse.ts';
import type { Answer, ParseOutcome } from './parser-thread.ts';

/** Characters of a part: copied in a fraction of a millisecond. */
const PART_CHARS = 65_536;
/** After so many parts, garbage is collected: V8 would keep it until the next content. */
const MANY_PARTS = 8;

const parser = new StateParser(workerData as FileLimits);
/** Of the last valid content; undefined: there was none. */
let nodesText: string | undefined;

parentPort?.on('message', (bytes: Uint8Array<ArrayBuffer>) => {
  let part: string[] = [];
  let length = 0;
  let parts = 0;
  const flush = (): void => {
    if (part.length === 0) return;
    post(part);
    parts += 1;
    part = [];
    length = 0;
  };
  const outcome = parse(bytes, {
    add(item) {
      part.push(item);
      length += item.length;
      if (length >= PART_CHARS) flush();
    },
    clear() {
      part = [];
      length = 0;
      post([]);
    },
  });
  flush();
  post(outcome);
  if (parts >= MANY_PARTS) void collectGarbage();
});

function parse(bytes: Uint8Array<ArrayBuffer>, changed: ChangedItems): ParseOutcome {
  const decoded = decodeText(bytes);
  // Frees them, as there may be many.
  bytes.buffer.transfer(0);
  const result = typeof decoded === 'string' ? parser.parse(decoded, changed) : decoded;
  if (!result.ok) return result;
  const before = nodesText;
  nodesText = JSON.stringify(result.nodes);
  return {
    ...result,
    nodes: result.nodes.length,
    nodesText: nodesText === before ? undefined : nodesText,
    reset: before === undefined,
  };
}

function post(answer: Answer): void {
  parentPort?.postMessage(answer, []);
}
