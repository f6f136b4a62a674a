/** An endpoint as a process that can be killed: answers requests once it listens. */
import { Endpoint, type EndpointPorts } from '../../examples/support/endpoint.ts';
import { answerRequests, settings } from '../support/dialogue.ts';

export interface EndpointSettings {
  readonly name: string;
  readonly address: string;
  readonly ports: EndpointPorts;
}

const { name, address, ports } = settings() as EndpointSettings;
await new Endpoint(name, address, ports).start();
answerRequests(() => null);
