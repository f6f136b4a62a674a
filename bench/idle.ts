/** Memory of the idle proxy. */
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { startProxy } from '../examples/support/proxy-process.ts';
import { tempFolder } from '../examples/support/temp-folder.ts';
import { writeState, type ServiceDescription } from '../examples/support/state-file.ts';
import type { IdleReport } from './report/report.ts';
import { memory, type Memory } from './support/process-usage.ts';

/** Services with one TCP port and two endpoints each, at 127.79.0.0/16. */
function services(count: number): ServiceDescription[] {
  return Array.from({ length: count }, (_, index) => ({
    namespace: 'idle',
    name: `service-${index}`,
    clusterIP: `127.79.${Math.floor(index / 250)}.${(index % 250) + 1}`,
    ports: [{ name: 'http', protocol: 'TCP', port: 8080, targetPort: 8080 }],
    endpoints: [1, 2].map((number) => ({ name: `pod-${number}`, address: `127.78.2.${number}` })),
  }));
}

/** Looks until the memory has stayed within 1 % for a second, for at most five. */
async function settled(pid: number): Promise<Memory | undefined> {
  let last = memory(pid);
  for (let quiet = 0, looks = 0; quiet < 4 && looks < 20; looks += 1) {
    await wait(250);
    const now = memory(pid);
    if (last === undefined || now === undefined) return now;
    quiet = Math.abs(now.resident - last.resident) < last.resident / 100 ? quiet + 1 : 0;
    last = now;
  }
  return last;
}

/** Starts a proxy with so many service ports and measures it. Undefined where there is no /proc. */
export async function idle(servicePorts: number): Promise<IdleReport | undefined> {
  const folder = tempFolder('idle');
  try {
    const input = join(folder.path, 'state.yaml');
    writeState(input, services(servicePorts));
    const start = performance.now();
    const proxy = await startProxy({ input });
    const readyMs = performance.now() - start;
    try {
      const used = await settled(proxy.pid);
      return used === undefined ? undefined : { servicePorts, ...used, readyMs };
    } finally {
      await proxy.stop();
    }
  } finally {
    folder.remove();
  }
}
