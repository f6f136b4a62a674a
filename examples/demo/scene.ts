/** The addresses, services and servers that the demo plays with. */
import { join } from 'node:path';
import { Endpoint } from '../support/endpoint.ts';
import { portNear } from '../support/ports.ts';
import { startProxy, type ProxyProcess } from '../support/proxy-process.ts';
import { tempFolder } from '../support/temp-folder.ts';
import { writeState, type ServiceDescription } from '../support/state-file.ts';

/** Addresses of the services, all of them loopback. */
export const SHOP = '127.77.0.10';
export const TILL = '127.77.0.20';
export const OVEN = '127.77.0.30';

/** Names and addresses of the endpoints; the last one joins later. */
const TREES = {
  alder: '127.77.1.1',
  birch: '127.77.1.2',
  cedar: '127.77.1.3',
  dogwood: '127.77.1.4',
} as const;
export type Tree = keyof typeof TREES;

export interface Scene {
  readonly endpoints: Readonly<Record<Tree, Endpoint>>;
  readonly ports: { readonly http: number; readonly echo: number };
  readonly stateFile: string;
  /** Where `status`, `top` and the like ask the proxy. */
  readonly adminSocket: string;
  /** Its status page. */
  readonly statusUrl: string;
  readonly proxy: ProxyProcess;
  /** Milliseconds from its start until the proxy was ready. */
  readonly startMs: number;
  /** Writes the state file: which endpoints there are, and whether there is the service `oven`. */
  write(trees: readonly Tree[], withOven?: boolean): void;
  /** Ends the proxy and the endpoints and removes the files. Idempotent. */
  close(): Promise<void>;
}

/** Starts three endpoints and the proxy. What was started is ended again if anything fails. */
export async function openScene(): Promise<Scene> {
  const folder = tempFolder('demo');
  const addresses = [SHOP, TILL, OVEN, ...Object.values(TREES)];
  const endings: (() => void | Promise<unknown>)[] = [() => folder.remove()];
  const close = async (): Promise<void> => {
    for (let end = endings.pop(); end !== undefined; end = endings.pop()) await end();
  };
  try {
    const ports = {
      http: await portNear('TCP', 8080, addresses),
      echo: await portNear('UDP', 5300, addresses),
    };
    const endpoint = (tree: Tree): Endpoint => new Endpoint(tree, TREES[tree], ports);
    const endpoints = {
      alder: endpoint('alder'),
      birch: endpoint('birch'),
      cedar: endpoint('cedar'),
      dogwood: endpoint('dogwood'),
    };
    for (const each of Object.values(endpoints)) endings.push(() => each.kill());
    await Promise.all([endpoints.alder.start(), endpoints.birch.start(), endpoints.cedar.start()]);
    const start = performance.now();
    const adminSocket =
      process.platform === 'win32'
        ? String.raw`\\.\pipe\kpng-userspace-demo-${process.pid}`
        : join(folder.path, 'admin.sock');
    const statusPage = `127.0.0.1:${await portNear('TCP', 8090, ['127.0.0.1'])}`;
    const proxy = await startProxy({
      services: describe(ports, ['alder', 'birch', 'cedar'], false),
      within: 60_000,
      args: [
        '--logging-format=text',
        // Programs can listen on any loopback address.
        '--portal-interface=',
        `--admin-socket=${adminSocket}`,
        `--status-bind-address=${statusPage}`,
      ],
    });
    const startMs = performance.now() - start;
    endings.push(() => proxy.stop());
    const { stateFile } = proxy;
    const write = (trees: readonly Tree[], withOven = false): void =>
      writeState(stateFile, describe(ports, trees, withOven));
    const statusUrl = `http://${statusPage}/`;
    return { endpoints, ports, stateFile, adminSocket, statusUrl, proxy, startMs, write, close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** The services of the bakery. */
function describe(
  ports: Scene['ports'],
  trees: readonly Tree[],
  withOven: boolean,
): ServiceDescription[] {
  const http = { name: 'http', protocol: 'TCP', port: ports.http, targetPort: ports.http } as const;
  const echo = { name: 'echo', protocol: 'UDP', port: ports.echo, targetPort: ports.echo } as const;
  const endpoints = trees.map((tree) => ({ name: tree, address: TREES[tree] }));
  const namespace = 'bakery';
  return [
    { namespace, name: 'shop', clusterIP: SHOP, ports: [http, echo], endpoints },
    { namespace, name: 'till', clusterIP: TILL, ports: [http], affinitySeconds: 600, endpoints },
    ...(withOven ? [{ namespace, name: 'oven', clusterIP: OVEN, ports: [http], endpoints }] : []),
  ];
}
