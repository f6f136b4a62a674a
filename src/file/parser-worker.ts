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

/** Sends the changed service items in parts. */
class Sender implements ChangedItems {
  #part: string[] = [];
  #length = 0;
  parts = 0;

  add(item: string): void {
    this.#part.push(item);
    this.#length += item.length;
    if (this.#length >= PART_CHARS) this.flush();
  }

  clear(): void {
    this.#part = [];
    this.#length = 0;
    post([]);
  }

  flush(): void {
    if (this.#part.length === 0) return;
    post(this.#part);
    this.parts += 1;
    this.#part = [];
    this.#length = 0;
  }
}

const parser = new StateParser(workerData as FileLimits);
/** Of the last valid content; undefined: there was none. */
let nodesText: string | undefined;

parentPort?.on('message', (bytes: Uint8Array<ArrayBuffer>) => {
  const sender = new Sender();
  const outcome = parse(bytes, sender);
  sender.flush();
  post(outcome);
  if (sender.parts >= MANY_PARTS) void collectGarbage();
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
