/** An endpoint is killed in the middle of a load of new connections. */
import { get } from '../../examples/support/http.ts';
import type { Check } from './check.ts';

const CLIENTS = 16;
const VICTIM = 'birch';

export const killedUnderLoad: Check = async (scene, { connections }) => {
  const url = `http://${scene.host}:${scene.ports.http}/`;
  let begun = 0;
  let gone = false;
  let cut = 0;
  let after = 0;
  const failures: string[] = [];
  let killing: Promise<void> | undefined;

  const client = async (): Promise<void> => {
    while (begun < connections) {
      begun += 1;
      if (begun === Math.floor(connections / 3)) {
        killing = scene.kill(VICTIM).then(() => {
          gone = true;
        });
      }
      // A connection that began before the end of the process may have been cut with it.
      const isNew = gone;
      if (isNew) after += 1;
      try {
        await get(url);
      } catch (error) {
        if (isNew) failures.push(String(error));
        else cut += 1;
      }
    }
  };
  await Promise.all(Array.from({ length: CLIENTS }, client));
  await killing;
  return {
    ok: failures.length === 0 && after > 0,
    text:
      `${VICTIM} killed under load: ${connections} connections, ${cut} cut in flight; ` +
      `begun after it was gone: ${after}, failed: ${failures.length}` +
      (failures.length > 0 ? ` (${failures[0]})` : ''),
  };
};
