import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

/** What is in use after a full collection. Bytes. */
export function usedMemory(): NodeJS.MemoryUsage {
  collectGarbage();
  return process.memoryUsage();
}
