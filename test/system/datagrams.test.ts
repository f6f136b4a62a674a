/** UDP clients that keep their socket, whatever becomes of the servers. */
import { PORTALS, testEach } from './support/kinds.ts';
import { ADDRESSES, NODE } from './support/network.ts';
import {
  CLUSTER,
  NODE_PORTS,
  pod,
  service,
  type EndpointParts,
  type Pod,
} from './support/services.ts';

const ports = [
  { name: 'dns', protocol: 'UDP', port: 53, nodeport: NODE_PORTS.UDP, targetport: 9053 },
];

testEach('UDP traffic continues when the server pod cycles', PORTALS, async (t, here) => {
  const program = here.start();
  const servers = { 'pod-a': here.podA, 'pod-b': here.podB };
  const start = async (name: Pod): Promise<void> => {
    const { v4, v6 } = ADDRESSES[name];
    await servers[name].serve(`${v4}:9053/UDP`, name);
    await servers[name].serve(`[${v6}]:9053/UDP`, name);
  };
  const serve = (...pods: [Pod, EndpointParts?][]): Promise<void> =>
    program.serve(
      service(
        pods.map(([name, parts]) => pod(name, parts)),
        { ports },
      ),
    );
  const places = {
    'the cluster IP': `${CLUSTER.v4}:53/UDP`,
    'the cluster IP, IPv6': `[${CLUSTER.v6}]:53/UDP`,
    'the node port': `${NODE.v4}:${NODE_PORTS.UDP}/UDP`,
    'the node port, IPv6': `[${NODE.v6}]:${NODE_PORTS.UDP}/UDP`,
  };
  const clients: string[] = [];
  const open = async (which: string): Promise<void> => {
    for (const [name, place] of Object.entries(places)) {
      clients.push(`${which}, ${name}`);
      await here.client.open(`${which}, ${name}`, place);
    }
  };
  const answeredBy = async (server: Pod, when: string): Promise<void> => {
    for (const name of clients) {
      // Clients of UDP repeat a question: a new address may cost the kernel a datagram.
      let answer = 'silence';
      for (let n = 0; n < 3 && answer === 'silence'; n += 1) {
        answer = await here.client.say(name, 2000);
      }
      t.equal(answer.split(' ')[0], server, `${name}: ${when}`);
    }
  };
  const refused = async (when: string): Promise<void> => {
    const expected = here.kind.refusesDatagrams ? 'ECONNREFUSED' : 'silence';
    const answers = await Promise.all(clients.map((name) => here.client.say(name, 500)));
    t.same([...new Set(answers)], [expected], when);
  };
  await start('pod-a');
  // The addresses are there, without these ports.
  await program.serve(service([pod('pod-b')], { ports: [{ ...ports[0], port: 54, nodeport: 0 }] }));
  await open('first');
  const early = await Promise.all(clients.map((name) => here.client.say(name, 300)));
  t.notMatch(early.join(), /pod-/, 'before there is a service');
  await serve(['pod-a']);
  await answeredBy('pod-a', 'the first server');

  await start('pod-b');
  await serve(['pod-b']);
  await servers['pod-a'].call('stopServing');
  await answeredBy('pod-b', 'another server has taken its place');

  // As it goes when a pod is deleted before there is another one.
  await servers['pod-b'].call('stopServing');
  await serve();
  await refused('no one is there');
  await start('pod-a');
  await program.serveSame(service([pod('pod-a', { ready: false })], { ports }));
  await open('second');
  await refused('a server is there that is not ready');
  await serve(['pod-a']);
  await answeredBy('pod-a', 'it has become ready');

  await start('pod-b');
  await serve(['pod-a', { ready: false }], ['pod-b']);
  await answeredBy('pod-b', 'the one became unready, the other ready');

  await program.serve(service([pod('pod-a')], { ports, name: 'successor' }));
  await answeredBy('pod-a', 'another service has the addresses');
  await program.serve();
  await Promise.all(clients.map((name) => here.client.say(name, 300)));
  await serve(['pod-b']);
  await answeredBy('pod-b', 'the service is back');
  t.same(program.complaints, []);
});
