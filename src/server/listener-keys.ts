import { named } from './place.ts';

/** The settings of an address and its port. */
export interface ListenerKeys {
  host: string;
  port: string;
}

/** For `catch`: names the setting of the address or of the port that cannot be used. */
export function nameAddress({ host, port }: ListenerKeys): (error: NodeJS.ErrnoException) => never {
  return (error) => {
    const isPort = error.code === 'EADDRINUSE' || error.code === 'EACCES';
    return named(isPort ? port : host, 'cannot listen')(error);
  };
}
