/** What becomes of rules and addresses when processes and services come and go. */
import { eventually } from '../support/until.ts';
import { ALL, PORTALS, RULES, testEach } from './support/kinds.ts';
import { onNode } from './support/program.ts';
import { ceaseless, CLUSTER, EXTERNAL, PLACES, service, simple } from './support/services.ts';

const WEB = `${CLUSTER.v4}:80`;

testEach('rules outlive their process; cleanup removes them', ALL, async (t, here) => {
  const { kind } = here;
  await here.sh(kind.addOthers);
  const before = await here.rules();
  const old = simple('old', '10.96.0.66', 'TCP 80');
  const first = here.start({ state: [service(), old] });
  await first.ready();
  await here.client.open('udp', `${EXTERNAL.v4}:53/UDP`);
  t.match(await here.client.say('udp'), /^pod/);
  const page = await first.page('metrics', '/metrics');
  const portal = `portal="${kind.name.split('-')[0]}"`;
  t.match(page, new RegExp(String.raw`portal_up\{${portal}\} 1\n`));
  t.match(page, new RegExp(String.raw`build_info\{.*${portal}\} 1\n`));
  await first.end('SIGKILL');
  t.match(await here.rules(), kind.portalOf('10.96.0.10', 'tcp', 80));
  t.match(await here.rules(), /10\.96\.0\.66/);
  t.equal(await here.client.ask(WEB), 'ECONNREFUSED', 'no one answers, and the client learns it');

  const second = here.start({ state: [service()] });
  await second.ready();
  for (const place of Object.values(PLACES).flat()) {
    t.match(await here.client.ask(place), /^pod/, place);
  }
  // Until what the kernel remembers of its flow is removed.
  const isServed = async () => (await here.client.say('udp', 2000)).startsWith('pod');
  t.ok(await eventually(isServed), 'a UDP client that continued with the same port');
  t.notMatch(await here.rules(), /10\.96\.0\.66/, 'what is not wanted any more is gone');
  t.equal(await second.end('SIGTERM'), 0);
  t.match(await here.rules(), kind.portalOf('10.96.0.10', 'tcp', 80));
  for (const time of ['first', 'second']) {
    t.match(await onNode(t, here.network, ['cleanup']).exited, { code: 0, stderr: '' }, time);
    t.equal(await here.rules(), before, time);
  }
});

testEach('--cleanup-on-exit waits for the last connection', PORTALS, async (t, here) => {
  await here.sh(here.kind.addOthers);
  const before = await here.rules();
  const mine = here.kind.flags.includes('nft')
    ? '--portal-table=mine --portal-chain-prefix=MINE'
    : '';
  const program = here.start({
    flags: `--cleanup-on-exit --drain-timeout=1m ${mine}`,
    state: [service()],
  });
  await program.ready();
  if (mine !== '') t.match(await here.rules(), /table inet mine|:MINE-PORTALS-HOST/);
  await here.client.open('kept', WEB);
  t.match(await here.client.say('kept'), /^pod/);
  program.kill('SIGTERM');
  await program.line('Stopping');
  t.match(await here.client.say('kept'), /^pod/, 'it is served on');
  await here.client.close('kept');
  t.equal((await program.exited).code, 0);
  t.equal(await here.rules(), before);
});

testEach('a new process takes over and no client is refused', RULES, async (t, here) => {
  const state = [service()];
  const first = await here.start({ state }).ready();
  await here.client.open('kept', WEB);
  t.match(await here.client.say('kept'), /^pod/);
  const stop = ceaseless(here.client, WEB);
  const second = await here.start({ state }).ready();
  const { err } = await first.error('KPNG_PORTAL_TAKEN');
  t.match(String(err), `another process (${second.pid}) writes`);
  t.match(await here.client.say('kept'), /^pod/, 'a connection through the first one continues');
  const counts = await stop();
  t.same(Object.keys(counts).sort(), ['pod-a', 'pod-b'], JSON.stringify(counts));
  const isTaken = second.log.some(({ code }) => code === 'KPNG_PORTAL_TAKEN');
  t.notOk(isTaken, 'only one of them has the table');

  await first.repairAfter(() => second.end('SIGKILL'));
  t.match(await here.client.ask(WEB), /^pod/, 'the first one has taken the table back');
});

testEach('a port moves, and connections outlive their service', PORTALS, async (t, here) => {
  const program = here.start();
  const web = (port: string, name = 'web') =>
    simple(name, '10.96.0.1', 'TCP 80', undefined, { name: port });
  const idle = simple('idle', '10.96.0.2', 'TCP 80');
  await program.serve(web('http'), idle);
  const stop = ceaseless(here.client, '10.96.0.1:80');
  for (const port of ['web', 'http', 'main', 'http']) await program.serve(web(port), idle);
  await program.serve(web('http', 'other'), idle);
  await program.serve(web('http'), idle);
  const counts = await stop();
  t.same(Object.keys(counts), ['pod-a'], JSON.stringify(counts));

  await here.client.open('kept', '10.96.0.1:80');
  t.match(await here.client.say('kept'), /^pod-a/);
  await program.serve();
  t.match(await here.client.say('kept'), /^pod-a/);
  t.equal(await here.client.askInVain('10.96.0.2:80'), 'silence', 'new ones find nothing');
  if (here.kind.name === 'address') t.equal(await here.client.ask('10.96.0.1:80'), 'ECONNREFUSED');
  else t.equal(await here.client.askInVain('10.96.0.1:80'), 'silence');
  await here.client.close('kept');
  const isGone = async () => (await here.client.askInVain('10.96.0.1:80')) === 'silence';
  t.ok(await eventually(isGone), 'an address goes with its last connection');
});
