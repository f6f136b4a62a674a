import type { EngineContext } from '../core/service-port.ts';
import { Session } from './session.ts';
import { Sessions } from './sessions.ts';

/** The sessions of the `node` engine. */
export class SessionTable extends Sessions<Session> {
  constructor(context: EngineContext) {
    super(context, (host, start) => new Session(host, start));
  }
}
