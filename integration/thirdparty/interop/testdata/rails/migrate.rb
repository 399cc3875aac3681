# Runs the migrations of a directory as "rake db:migrate" does: migrate.rb DIRECTORY, with DATABASE_URL.
require "active_record"

ActiveRecord::Base.establish_connection(ENV.fetch("DATABASE_URL"))
ActiveRecord::Migration.verbose = false
ActiveRecord::MigrationContext.new(ARGV.fetch(0), ActiveRecord::SchemaMigration).migrate
