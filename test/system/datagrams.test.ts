/** UDP clients that keep their socket, whatever becomes of the servers. */
import { eventually } from '../support/until.ts';
import { PORTALS, testEach } from './support/kinds.ts';
import { ADDRESSES } from './support/network.ts';
import { DATAGRAMS, NODE_PORTS, pod, service, type Pod } from './support/services.ts';

const PORT = { name: 'dns', protocol: 'UDP', port: 53, nodeport: NODE_PORTS.UDP, targetport: 9053 };

testEach('UDP traffic continues when the server pod cycles', PORTALS, async (t, here) => {
  const program = here.start();
  const servers = { 'pod-a': here.podA, 'pod-b': here.podB };
  const start = async (name: Pod): Promise<void> => {
    const { v4, v6 } = ADDRESSES[name];
    await servers[name].serve(`${v4}:9053/UDP`, name);
    await servers[name].serve(`[${v6}]:9053/UDP`, name);
  };
  const web = (...endpoints: object[]) => service(endpoints, { ports: [PORT] });
  const clients: string[] = [];
  const open = async (which: string): Promise<void> => {
    for (const place of DATAGRAMS) {
      clients.push(`${which}, ${place}`);
      await here.client.open(`${which}, ${place}`, place);
    }
  };
  // Clients of UDP repeat a question: a new address may cost the kernel a datagram, and a loaded machine may take longer
  // to remove what the kernel remembers of a flow, which these datagrams would keep for good.
  const answeredBy = async (server: Pod, when: string): Promise<void> => {
    for (const name of clients) {
      let answer = '';
      const isAnswered = async (): Promise<boolean> => {
        answer = await here.client.say(name, 2000);
        return answer.startsWith(`${server} `);
      };
      t.ok(await eventually(isAnswered), `${name}: ${when}: ${answer}`);
    }
  };
  const sayAll = (waitMs?: number) =>
    Promise.all(clients.map((name) => here.client.say(name, waitMs)));
  const refused = async (when: string): Promise<void> => {
    const [expected, waitMs] = here.kind.refusesDatagrams
      ? ['ECONNREFUSED', 2000]
      : ['silence', 500];
    let answers = '';
    const isRefused = async (): Promise<boolean> => {
      answers = [...new Set(await sayAll(waitMs))].join();
      return answers === expected;
    };
    t.ok(await eventually(isRefused), `${when}: ${answers}`);
  };
  await start('pod-a');
  // The addresses are there, without these ports.
  await program.serve(service([pod('pod-b')], { ports: [{ ...PORT, port: 54, nodeport: 0 }] }));
  await open('first');
  t.notMatch((await sayAll(300)).join(), /pod-/, 'before there is a service');
  await program.serve(web(pod('pod-a')));
  await answeredBy('pod-a', 'the first server');

  await start('pod-b');
  await program.serve(web(pod('pod-b')));
  await servers['pod-a'].call('stopServing');
  await answeredBy('pod-b', 'another server has taken its place');

  // As it goes when a pod is deleted before there is another one.
  await servers['pod-b'].call('stopServing');
  await program.serve(web());
  await refused('no one is there');
  await start('pod-a');
  await program.serveSame(web(pod('pod-a', { ready: false })));
  await open('second');
  await refused('a server is there that is not ready');
  await program.serve(web(pod('pod-a')));
  await answeredBy('pod-a', 'it has become ready');

  await start('pod-b');
  await program.serve(web(pod('pod-a', { ready: false }), pod('pod-b')));
  await answeredBy('pod-b', 'the one became unready, the other ready');

  await program.serve(service([pod('pod-a')], { ports: [PORT], name: 'successor' }));
  await answeredBy('pod-a', 'another service has the addresses');
  await program.serve();
  await sayAll(300);
  await program.serve(web(pod('pod-b')));
  await answeredBy('pod-b', 'the service is back');
  t.same(program.complaints, []);
});
