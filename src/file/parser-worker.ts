/** The thread that parses a state file; parser-thread.ts starts it. */
import { parentPort, workerData } from 'node:worker_threads';
import type { FileLimits } from './limits.ts';
import { collectGarbage } from '../util/collect-garbage.ts';
import { decodeText, StateParser } from './parse.ts';
import type { Request, ParseOutcome } from './parser-thread.ts';

/** Characters of a message: copied in a fraction of a millisecond. */
const PART_CHARS = 65_536;
/** After so many changed service items, garbage is collected: V8 would keep it until the next content. */
const MANY_ITEMS = 1000;

const parser = new StateParser(workerData as FileLimits);
let isFirst = true;
let nodesText: string | undefined;
/** Changed service items that have not been sent yet; the next one last. */
let unsent: string[] = [];
/** Number of those that have been sent. */
let sent = 0;

parentPort?.on('message', (request: Request) => {
  parentPort?.postMessage(request === 'next part' ? nextPart() : parse(request), []);
});

function parse(bytes: Uint8Array<ArrayBuffer>): ParseOutcome {
  const decoded = decodeText(bytes);
  // Frees them, as there may be many.
  bytes.buffer.transfer(0);
  const result = typeof decoded === 'string' ? parser.parse(decoded) : decoded;
  if (!result.ok) return result;
  const { services, nodes, changed, removed, newWarnings, parsedItems } = result;
  unsent = changed.toReversed();
  const text = JSON.stringify(nodes);
  const changes = { reset: isFirst, removed, nodes: text === nodesText ? undefined : text };
  isFirst = false;
  nodesText = text;
  return { ok: true, services, nodes: nodes.length, parsedItems, newWarnings, changes };
}

/** The next changed service items; empty: done. */
function nextPart(): string[] {
  const part: string[] = [];
  for (let length = 0; length < PART_CHARS;) {
    const text = unsent.pop();
    if (text === undefined) break;
    part.push(text);
    length += text.length;
  }
  if (part.length === 0 && sent > MANY_ITEMS) void collectGarbage();
  sent = part.length === 0 ? 0 : sent + part.length;
  return part;
}
