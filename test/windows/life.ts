/** The life of two services on a Windows node: the controller, and the proxy that needs it. */
import { match, equal } from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { until } from '../support/until.ts';
import { type Namespace, PORTAL_LINK, type Steps, type Wine } from './support/wine.ts';
import type { NetshDesk } from './support/netsh-desk.ts';
import { ask, becomes, drains, WAIT_MS } from './support/peers.ts';

const FOLDER = String.raw`C:\Program Files\Lab App`;
const KPNG = String.raw`${FOLDER}\kpng.exe`;
const PROXY = String.raw`${FOLDER}\winuserspace.exe`;
const STATE = String.raw`${FOLDER}\the state.yaml`;
const LOG = String.raw`C:\ProgramData\kpng-userspace\logs\winuserspace.log`;
const CLUSTER_IP = '10.96.0.10';
const CLUSTER_IP6 = 'fd00:96::10';

const stateWith = (services: string) => `services:${services}`;
const WEB = `
  - service:
      namespace: lab
      name: web
      ips: { clusterips: { v4: [${CLUSTER_IP}], v6: ['${CLUSTER_IP6}'] } }
      ports:
        - { name: http, protocol: TCP, port: 80, targetport: 7001 }
        - { name: dns, protocol: UDP, port: 53, targetport: 7002 }
    endpoints:
      - podname: echo
        endpoint: { ips: { v4: [127.0.0.1] } }
`;

export interface Lab {
  readonly wine: Wine;
  readonly namespace: Namespace;
  readonly desk: NetshDesk;
  /** kpng.exe, winuserspace.exe and nssm.exe. */
  readonly files: readonly string[];
}

export async function life(steps: Steps, lab: Lab): Promise<void> {
  const { wine, namespace, desk } = lab;
  const service = (code: number, ...args: string[]): Promise<string> =>
    wine.runs(code, PROXY, 'service', ...args);
  const log = () => readFile(wine.hostPath(LOG), 'utf8').catch(() => '');
  const logSays = (pattern: RegExp, from = 0): Promise<void> =>
    becomes(pattern.source, async () => pattern.test((await log()).slice(from)), log);
  const writeState = (text: string) => writeFile(wine.hostPath(STATE), text);
  const servesAll = async (): Promise<void> => {
    await ask(namespace, 'tcp', CLUSTER_IP, 80, 'over TCP');
    await ask(namespace, 'udp', CLUSTER_IP, 53, 'over UDP');
    await ask(namespace, 'tcp', CLUSTER_IP6, 80, 'over IPv6');
  };

  await wine.put(FOLDER, ...lab.files);
  await writeState(stateWith(WEB));

  await steps.step('the executable starts, and is what its name says', async () => {
    const said = await wine.runs(0, KPNG, 'version');
    match(said, /^platform: win32 x64$/m);
    match(await wine.runs(2, PROXY, '--portal', 'bogus'), /expected auto/);
    return said;
  });

  const installed = await steps.step('service install, in a path with blanks', async () => {
    match(await service(1, 'status', '--name', 'winuserspace'), /^absent/);
    const controller = ['--name', 'kpng', '--start', 'demand', '--', 'file', '-i', STATE, 'to-api'];
    const backend = 'local to-winuserspace -v=4 --drain-timeout 1m'.split(' ');
    const environment = [
      String.raw`PATH=Z:\kpng\bin;C:\windows\system32`,
      String.raw`KPNG_NETSH_SPOOL=Z:\kpng\spool`,
      `INTERFACE_TO_ADD_SERVICE_IP=${PORTAL_LINK}`,
    ];
    const proxy = [
      ...'--name winuserspace --depends-on kpng --start demand --restart-delay 500ms --stop-timeout 90s'.split(
        ' ',
      ),
      ...environment.flatMap((each) => ['--env', each]),
      '--',
      ...backend,
    ];
    const said = [
      await wine.runs(0, KPNG, 'service', 'install', ...controller),
      await service(0, 'install', ...proxy),
    ];
    match(said[0] ?? '', /The service kpng is installed and stopped/);
    return said.join('');
  });
  if (!installed) return;

  // Wine neither keeps what a service depends on nor starts it; Windows does both.
  const started = await steps.step('service start waits until they run', async () => {
    const said = [
      await service(0, 'start', '--name', 'kpng'),
      await service(0, 'start', '--name', 'winuserspace'),
    ];
    equal((await service(0, 'status', '--name', 'kpng')).trim(), 'running');
    await logSays(/The first complete state is in place/);
    return said.join('');
  });
  if (!started) return;

  await steps.step('TCP and UDP go through the proxy, in both families', servesAll);

  await steps.step('a killed proxy comes back and knows its addresses', async () => {
    const from = (await log()).length;
    const scripts = desk.netsh.scripts.length;
    const kill = String.raw`C:\windows\system32\taskkill.exe`;
    await wine.run(kill, ['/f', '/im', 'winuserspace.exe']);
    await logSays(/The first complete state is in place/, from);
    await servesAll();
    equal(desk.netsh.scripts.length, scripts, 'nothing was added again');
  });

  await steps.step('a service that goes takes its addresses along', async () => {
    await writeState(stateWith(' []\n'));
    await until(() => desk.netsh.on(PORTAL_LINK).length === 0, WAIT_MS);
    const from = (await log()).length;
    await writeState(stateWith(WEB));
    await until(() => desk.netsh.on(PORTAL_LINK).length === 2, WAIT_MS);
    await logSays(/(?:"msg":"Adding new service"[^]*){2}/, from);
    await servesAll();
  });

  await steps.step('service stop lets connections drain, and waits for it', async () => {
    const from = (await log()).length;
    let stopping: Promise<string> | undefined;
    await drains(namespace, CLUSTER_IP, 80, () => {
      stopping = service(0, 'stop', '--name', 'winuserspace');
      return logSays(/"signal":"SIGINT".*"msg":"Stopping"/, from);
    });
    const said = await stopping;
    // NSSM copies what the program has printed, maybe after it has reported the end.
    await logSays(/"msg":"Stopped"/, from);
    match(await service(1, 'status', '--name', 'winuserspace'), /^stopped/);
    await service(0, 'stop', '--name', 'winuserspace');
    const lines = (await log()).slice(from).split('\n');
    return said + lines.filter((line) => /"msg":"Stop(?:ping|ped)"/.test(line)).join('\n');
  });

  await steps.step('the addresses stay for the next start; cleanup removes them', async () => {
    equal(desk.netsh.on(PORTAL_LINK).length, 2);
    const said = await wine.runs(0, PROXY, 'cleanup', '--portal-interface', PORTAL_LINK);
    equal(desk.netsh.on(PORTAL_LINK).length, 0);
    return said;
  });

  await steps.step('service uninstall removes both', async () => {
    const said = await service(0, 'uninstall', '--name', 'winuserspace');
    await service(0, 'uninstall', '--name', 'kpng');
    match(await service(1, 'status', '--name', 'winuserspace'), /^absent/);
    return said;
  });
}
