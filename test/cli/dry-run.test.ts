import { join } from 'node:path';
import t, { type Test } from 'tap';
import { runCli } from '../support/cli.ts';

const STATE = `nodes: [{name: n1}]
services:
- service:
    name: web
    type: LoadBalancer
    externaltraffictolocal: true
    healthchecknodeport: 32100
    ips: {clusterips: {v4: [10.96.0.10], v6: ['fd96::10']}, externalips: {v4: [203.0.113.10]}}
    ports:
    - {name: http, protocol: 1, port: 80, nodeport: 30080, targetport: 8080}
    - {name: dns, protocol: 2, port: 53, targetport: 8080}
  endpoints:
  - endpoint: {ips: {v4: [127.0.0.1]}}
    topology: {node: n1}
- service:
    name: far
    externaltraffictolocal: true
    internaltraffictolocal: true
    ips: {clusterips: {v4: [10.96.0.12]}, externalips: {v4: [203.0.113.12]}}
    ports: [{name: http, protocol: 1, port: 80, targetport: 8080}]
  endpoints:
  - endpoint: {ips: {v4: [127.0.0.2]}}
    topology: {node: n2}
- service:
    name: empty
    ips: {clusterips: {v4: [10.96.0.11]}}
    ports: [{name: http, protocol: 1, port: 80, nodeport: 30080, targetport: 8080}]
`;

async function dryRun(t: Test, flags: string, backend = 'to-userspace'): Promise<string> {
  const folder = t.testdir({ 'state.yaml': STATE });
  const path = join(folder, 'state.yaml');
  const line = `file --input ${path} to-local ${backend} --node-name n1 --dry-run ${flags}`;
  const { code, stdout, stderr } = await runCli(line.trim().split(' '));
  t.equal(code, 0);
  t.notMatch(stderr, /Serving|"level":"error"|Wrote/, 'no server, no rules');
  return stdout;
}

t.test('shows the transaction of nft, and where it would listen', async (t) => {
  const flags = '--portal nftables --port-range 36000-36100 --metrics-bind-address=:0';
  const text = await dryRun(t, flags);
  t.equal(await dryRun(t, flags), text, 'it says the same each time');
  t.match(text, /^# portal nftables: /);
  t.match(text, /^# listen on 0\.0\.0\.0:36\d\d\d\/TCP for default\/web:http \(external\)$/m);
  t.match(text, /^nft -f - <<'EOF'\nadd table inet kpng-userspace\n[^]*\nEOF\n/m);
  t.match(text, /^10\.96\.0\.10 \. tcp \. 80 : 36\d\d\d,?$/m);
  t.match(text, /^conntrack -L -f ipv4 -p udp --orig-port-dst 53 --orig-dst 10\.96\.0\.10$/m);
  t.match(text, /^# answer load balancers on port 32100 for default\/web$/m);
  t.match(
    text,
    /^# KPNG_PORTAL_CONFLICT: default\/web:http cannot have node port 30080\/TCP: default\/empty/m,
  );
});

t.test('shows services whose endpoints are on other nodes', async (t) => {
  const text = await dryRun(t, '--portal nftables --cluster-cidr 10.244.0.0/16');
  const elements = (set: string) =>
    new RegExp(`add element inet kpng-userspace ${set} \\{\n([^]*?)\\}`).exec(text)?.[1];
  t.match(elements('no-local4'), '203.0.113.12 . tcp . 80');
  t.match(elements('pods4'), '203.0.113.12 . tcp . 80 . 10.244.0.0/16');
  t.match(elements('services4'), /^203\.0\.113\.12 \. tcp \. 80 : \d+,?$/m);
  t.match(elements('guarded4'), '10.96.0.12 . tcp . 80', 'no client may use the cluster IP');
  t.notMatch(elements('empty4'), '10.96.0.12');
});

t.test('shows the routing rule and the shared socket of the transparent portal', async (t) => {
  const text = await dryRun(t, '--engine linux --portal transparent');
  t.match(text, /^# portal transparent: /);
  t.match(text, /^# listen on 127\.0\.0\.1:50000\/TCP for default\/far:http \(external\)$/m);
  t.match(text, /^# listen on 127\.0\.0\.1:50000\/TCP for default\/web:http \(internal\)$/m);
  t.match(text, /^# listen on 10\.96\.0\.10:53\/UDP for default\/web:dns \(internal\)$/m);
  t.match(text, /^rule add fwmark 64\/64 lookup 10040 priority 40 protocol 78$/m);
  t.match(text, /listeners4 \{\ntcp : 50000\n\}/);
  t.match(text, /services4 \{\n(?:[^}]*\n)?10\.96\.0\.10 \. tcp \. 80,?\n/);
});

t.test('ports that the kernel would choose are made up', async (t) => {
  const text = await dryRun(t, '--portal nftables --health-check-node-ports=false');
  t.match(text, /^# ports from 50000 on stand for those/m);
  t.match(text, /^10\.96\.0\.10 \. tcp \. 80 : 500\d\d,?$/m);
  t.notMatch(text, /load balancers/);
});

t.test('shows how addresses would be added to an interface', async (t) => {
  const text = await dryRun(t, '--portal-interface kpng-dry-run');
  t.match(text, /^# portal address: /);
  t.match(text, /^ip -force -batch - <<'EOF'\nlink add name kpng-dry-run type dummy\n/m);
  const add = 'address add 10.96.0.10/32 dev kpng-dry-run scope host metric 27504\n';
  t.ok(text.includes(add));
  t.ok(text.indexOf(add) < text.indexOf('# listen on 10.96.0.10:80/TCP for default/web:http'));
  t.match(text, /^# listen on \[fd96::10\]:53\/UDP for default\/web:dns \(internal\)$/m);
});

t.test('where nothing has to be run, it shows where it would listen', async (t) => {
  t.match(await dryRun(t, '--portal address'), /^# listen on 10\.96\.0\.10:80\/TCP/m);
  const none = await dryRun(t, '--portal none --bind-address 127.0.0.1');
  t.match(none, /^# listen on 127\.0\.0\.1:5000\d\/TCP for default\/web:http \(internal\)$/m);
  t.notMatch(none, /^[^#\n]/m, 'nothing but comments');
});

t.test('to-extip shows the rules of both families', async (t) => {
  const text = await dryRun(t, '--load-balancers-only --iptables-chain-prefix my-', 'to-extip');
  t.match(text, /^iptables-restore --noflush .*<<'EOF'\n\*filter\n:my-forward - \[0:0\]$/m);
  t.match(text, /^-A my-DNAT -d 203\.0\.113\.10 -p tcp .*--to-destination 127\.0\.0\.1:8080$/m);
  t.match(text, /^ip6tables-restore /m);
  t.notMatch(text, '203.0.113.12');
});

t.test('a state file that is missing or has errors ends it', async (t) => {
  const folder = t.testdir({ 'bad.yaml': 'services: 5\n' });
  for (const name of ['missing.yaml', 'bad.yaml']) {
    const path = join(folder, name);
    const line = `file --input ${path} to-local to-userspace --node-name n1 --dry-run`;
    const { code, stdout, stderr } = await runCli(line.split(' '));
    t.equal(code, 1);
    t.equal(stdout, '');
    t.match(stderr, /Nothing to preview: the state file could not be loaded/);
    t.match(stderr, name === 'bad.yaml' ? /KPNG_STATE_FILE_INVALID/ : /KPNG_STATE_FILE_READ/);
  }
});
