/** The thread that parses a state file; parser-thread.ts starts it. */
import { parentPort, workerData } from 'node:worker_threads';
import type { GlobalState } from '../store/global-state.ts';
import { stateChanges, type StateChange } from './changes.ts';
import type { FileLimits } from './limits.ts';
import { decodeText, StateParser } from './parse.ts';
import type { Request, ParseOutcome } from './parser-thread.ts';

/** Steps per message, weighted by endpoints: a few milliseconds of copying. */
const PART_WEIGHT = 1000;

const parser = new StateParser(workerData as FileLimits);
let state: GlobalState | undefined;
let changes: Iterator<StateChange, void, undefined> = [].values();

parentPort?.on('message', (request: Request) => {
  parentPort?.postMessage(request === 'next part' ? nextPart() : parse(request), []);
});

function parse(bytes: Uint8Array): ParseOutcome {
  const decoded = decodeText(bytes);
  const result = typeof decoded === 'string' ? parser.parse(decoded) : decoded;
  if (!result.ok) return { ok: false, errors: result.errors };
  const { newWarnings, parsedItems } = result;
  const { services, nodes } = result.state;
  changes = stateChanges(state, result.state);
  state = result.state;
  return { ok: true, services: services.size, nodes: nodes.size, parsedItems, newWarnings };
}

/** The next changes towards the newest state; empty: done. */
function nextPart(): StateChange[] {
  const part: StateChange[] = [];
  for (let weight = 0; weight < PART_WEIGHT;) {
    const { value } = changes.next();
    if (value === undefined) break;
    part.push(value);
    weight += value.kind === 'endpoints' ? value.endpoints.length : 1;
  }
  return part;
}
