/** The command lines of the posts: `kpng.exe kube to-api` beside `winuserspace.exe -v=4`. */
import { deepEqual, match } from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { until } from '../support/until.ts';
import type { Lab } from './life.ts';
import { kubeconfig } from './stops.ts';
import { PORTAL_LINK, REMARKS, type Steps } from './support/wine.ts';
import { ask, inside, Peer, WAIT_MS } from './support/peers.ts';

const FOLDER = String.raw`C:\k`;
const PROXY = String.raw`${FOLDER}\winuserspace.exe`;
const CONFIG = String.raw`${FOLDER}\config`;
const SERVICE = '10.96.0.20';
const ADDED = '10.96.0.21';

export async function cluster(steps: Steps, lab: Lab): Promise<void> {
  const { wine, namespace, desk } = lab;
  await wine.put(FOLDER, ...lab.files);
  const api = new Peer(namespace, ['api']);
  await api.said(/http:/);
  await writeFile(wine.hostPath(CONFIG), kubeconfig(api.stdout.trim()));

  const kube = ['kube', '--kubeconfig', CONFIG, 'to-api'];
  const controller = wine.start(String.raw`${FOLDER}\kpng.exe`, kube);
  const variable = `INTERFACE_TO_ADD_SERVICE_IP=${PORTAL_LINK}`;
  const proxy = wine.start(PROXY, ['-v=4'], [variable]);

  const running = await steps.step('kpng.exe kube to-api, winuserspace.exe -v=4', async () => {
    await proxy.said(/The first complete state is in place/);
    await ask(namespace, 'tcp', SERVICE, 80, 'over TCP');
    await ask(namespace, 'udp', SERVICE, 53, 'over UDP');
    deepEqual(
      desk.netsh.on(PORTAL_LINK).map(({ address }) => address),
      [SERVICE],
    );
    match(proxy.text, /"msg":"The node engine reads clients into its own buffers"/);
    for (const line of proxy.text.replaceAll(REMARKS, '').trim().split('\n')) JSON.parse(line);
  });

  const end = async (): Promise<void> => {
    proxy.kill('SIGKILL');
    controller.kill('SIGKILL');
    await api.end();
  };
  if (!running) return end();

  await steps.step('a Service that is made in the cluster is served', async () => {
    api.send('more');
    await until(() => desk.netsh.on(PORTAL_LINK).length === 2, WAIT_MS);
    // The log reports the two ports of the first Service, and then of those of this one.
    await proxy.said(/(?:"msg":"Adding new service"[^]*){4}/);
    await ask(namespace, 'tcp', ADDED, 80, 'over TCP');
    await ask(namespace, 'udp', ADDED, 54, 'over UDP');
  });

  await steps.step('metrics and health of the executable', async () => {
    const page = await inside(namespace, 'curl', '-si', 'http://127.0.0.1:10249/metrics');
    match(page, /^HTTP\/1\.1 200 /);
    match(page, /^kpng_userspace_connections_total\{[^}]*service="web",port="http"[^}]*\} 1$/m);
    const health = await inside(namespace, 'curl', '-si', 'http://127.0.0.1:10256/healthz');
    match(health, /^HTTP\/1\.1 200 /);
  });

  await steps.step('status, over the named pipe of the proxy', async () => {
    const said = await wine.runs(0, PROXY, 'status');
    match(said, /^state +ready$/m);
    match(said, /^service ports +4$/m);
    return said;
  });

  await end();
}
