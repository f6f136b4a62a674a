/** `npm run bench -- integrity`: everything arrives as it was sent, and new connections never fail. */
import type { Check } from './integrity/check.ts';
import { datagrams } from './integrity/datagrams.ts';
import { killedUnderLoad } from './integrity/killed.ts';
import { openIntegrityScene } from './integrity/scene.ts';
import { downloads, parallelDownloads, parallelUploads, uploads } from './integrity/transfer.ts';

export interface IntegrityOptions {
  /** Size of the large transfers. MiB. */
  readonly mib: number;
  /** Connections of the check that kills an endpoint. Default: 3,000. */
  readonly connections?: number;
  /** Gets one line for each check. */
  readonly onLine: (line: string) => void;
}

const CHECKS: readonly Check[] = [
  downloads,
  uploads,
  parallelDownloads,
  parallelUploads,
  datagrams,
  killedUnderLoad,
];

/** Runs every check, also after a failure, and resolves with whether all are well. */
export async function runIntegrity(options: IntegrityOptions): Promise<boolean> {
  const { mib, connections = 3000, onLine } = options;
  const scene = await openIntegrityScene();
  let ok = true;
  try {
    for (const check of CHECKS) {
      const result = await check(scene, { bytes: mib * 1024 * 1024, connections }).catch(
        (error: unknown) => ({ ok: false, text: String(error) }),
      );
      onLine(`${result.ok ? 'ok  ' : 'FAIL'}  ${result.text}`);
      ok &&= result.ok;
    }
  } finally {
    await scene.close();
  }
  return ok;
}
