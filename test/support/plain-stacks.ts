// ava turns source maps on. No file here has one, because types are removed in place, and with them each statement of
// Sequelize, which makes a stack, takes half as long again. A server in production has none, either.
process.setSourceMapsEnabled(false);
