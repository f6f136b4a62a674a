import { writeFile } from 'node:fs/promises';
import type { Log } from '../observe/log.ts';

/** Where Linux takes how readily it ends a process. */
const PATH = '/proc/self/oom_score_adj';

/**
 * Tells the kernel what `--oom-score-adj` asks for. A kernel that does not take it is a warning: the
 * proxy works all the same. `path` is for tests.
 */
export async function setOomScore(
  score: number | undefined,
  log: Log,
  path: string = PATH,
): Promise<void> {
  if (score === undefined) return;
  try {
    await writeFile(path, String(score), { flag: 'r+' });
  } catch (error) {
    log.warn('OOM score not set; lowering it needs the capability SYS_RESOURCE', {
      oomScoreAdj: score,
      err: error,
    });
  }
}
