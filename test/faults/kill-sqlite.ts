import type { Fault } from './fault.ts';
import { killServers } from './killed-servers.ts';

export const fault: Fault = {
  name: 'kill -9 of a server under pushes, SQLite',
  run: ({ tries }) => killServers(tries, 1),
};
